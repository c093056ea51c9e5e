"""The SQL sandbox: decides, by Spark's plans of it, whether untrusted SQL may run.

Spark SQL can run programs, call Java and read any file. So this is an allow-list: everything that is not known to be
harmless is refused, and so is every part that a plan's JSON omits, because it could be anything.
"""

import json
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from service.errors import InvalidQuery, nearest
from service.guard.costs.expansion import check_expansion
from service.guard.costs.limits import QueryLimits
from service.guard.costs.literals import check_literals
from service.guard.costs.matching import check_hidden_patterns
from service.guard.costs.plans import Listed, PlanCosts
from service.guard.costs.shape import check_shape
from service.guard.functions import FUNCTIONS, GENERATORS, split_words
from service.guard.nodes import class_name, is_plan_class, is_tree, tree
from service.model.schema.types import fold_case

log = logging.getLogger("firn.guard")
_PLANS = split_words(
    """
    Aggregate Distinct Except Filter Generate GlobalLimit Intersect Join LateralJoin LimitAll LocalLimit LocalRelation
    Offset OneRowRelation PipeOperator Pivot Project Sample Sort SubqueryAlias Union Unpivot UnresolvedHaving
    UnresolvedInlineTable UnresolvedRelation UnresolvedSubqueryColumnAliases UnresolvedTableValuedFunction
    UnresolvedWith
    """
)
_EXPRESSIONS = split_words(
    """
    Add AggregateExpression Alias And AnyValue AttributeReference Between BitwiseAnd BitwiseNot BitwiseOr BitwiseXor
    CaseWhen Cast Coalesce Collate Concat CreateArray CreateNamedStruct CreateStruct Cube CurrentDate CurrentRow$
    CurrentTimestamp Divide EqualNullSafe EqualTo Exists First GreaterThan GreaterThanOrEqual GroupingSets ILike
    ILikeAll ILikeAny If In InSubquery IntegralDivide IsNotNull IsNull LambdaFunction Last LateralSubquery LessThan
    LessThanOrEqual Like LikeAll LikeAny ListQuery Literal MultiAlias Multiply NamePlaceholder$ NamedParameter Not
    NotILikeAll NotILikeAny NotLikeAll NotLikeAny Or Overlay RLike Remainder Rollup ScalarSubquery ShiftLeft ShiftRight
    ShiftRightUnsigned SortOrder SpecifiedWindowFrame StringLocate StringTrim StringTrimBoth StringTrimLeft
    StringTrimRight Substring Subtract TimestampAdd TimestampDiff UnaryMinus UnaryPositive UnboundedFollowing$
    UnboundedPreceding$ UnresolvedAlias UnresolvedAttribute UnresolvedCollation UnresolvedExtractValue
    UnresolvedFunction UnresolvedGenerator UnresolvedNamedLambdaVariable UnresolvedOrdinal UnresolvedStar
    UnresolvedStarExceptOrReplace UnspecifiedFrame$ WindowExpression WindowSpecDefinition
    """
)
_PACKAGE = "org.apache.spark.sql.catalyst."
# Fields that may be null in the JSON because they are harmless, such as how an expression treats errors.
_BLANK_ANYWHERE = frozenset({"evalContext", "evalMode"})
_BLANK = {
    "UnresolvedRelation": {"options"},
    "Join": {"hint"},
    "LocalRelation": {"data"},
    "Literal": {"value"},
    "Like": {"escapeChar"},
    "ILike": {"escapeChar"},
    # These are plain texts: for anything else Spark makes single comparisons.
    **{name: {"patterns"} for name in ("LikeAll", "LikeAny", "NotLikeAll", "NotLikeAny")},
    "Cube": {"groupingSetIndexes"},
    "Rollup": {"groupingSetIndexes"},
    "GroupingSets": {"groupingSetIndexes"},
}
_WORDS = {
    "RelationTimeTravel": "VERSION AS OF and TIMESTAMP AS OF; use as_of",
    "UnresolvedTableValuedFunction": "that function in place of a table",
    "WithWindowDefinition": "a WINDOW clause; write the window after OVER",
    "UnresolvedWindowExpression": "a WINDOW clause; write the window after OVER",
    "UnresolvedHint": "hints",
    "ScriptTransformation": "TRANSFORM",
    "PlanWithUnresolvedIdentifier": "IDENTIFIER(…)",
    "ExpressionWithUnresolvedIdentifier": "IDENTIFIER(…)",
    "PosParameter": "the parameter ?; give it a name, such as :id",
}
_LEAVES = frozenset({"LocalRelation", "OneRowRelation", "DataSourceV2Relation", "CTERelationRef", "UnionLoopRef"})
_NEVER = split_words(
    """
    CallMethodViaReflection TryReflect InputFileName InputFileBlockStart InputFileBlockLength CurrentUser SessionUser
    CurrentDatabase CurrentCatalog SparkVersion SparkPartitionID ScalaUDF PythonUDF PythonUDTF HiveSimpleUDF
    HiveGenericUDF VariableReference ScriptTransformation
    """
)
_NAME = re.compile(r"\[([A-Za-z0-9_-]+)(?:, ([A-Za-z0-9_-]+))?\]")
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:[eE]\+?\d{1,3})?")
_WITH_NAME = re.compile(r"[\w-]+")
_FUNCTION = re.compile(r"\[?([A-Za-z_][A-Za-z0-9_]*)\]?")


@dataclass(frozen=True, slots=True, order=True)
class TableReference:
    """A table as the SQL names it. Without a namespace, it is in the request's namespace."""

    namespace: str | None
    table: str


@dataclass(frozen=True, slots=True)
class SelectReferences:
    """The tables, WITH names and parameters of an allowed SELECT."""

    tables: frozenset[TableReference]
    with_names: frozenset[str]
    parameters: frozenset[str]


@dataclass(frozen=True, slots=True)
class QueryBounds:
    """What bounds the costs of a query beside its plan."""

    limits: QueryLimits
    text: str
    rows: Mapping[str, float] = field(default_factory=dict)
    """How many rows each view has, as far as that is known."""
    most_rows: float = 1.0
    """How many rows of the result are in memory at the same time."""
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def listed(self) -> Listed:
        """What VALUES may have. The JSON omits it, but all of it is in the text or in the parameters."""
        text = f"{self.text} {list(self.params.values())}" if self.params else self.text
        numbers = (float(number) for number in _NUMBER.findall(text))
        # Each row takes two characters at least.
        return Listed(len(text) / 2, float(len(text)), max(numbers, default=1.0))


def check_parsed(plan_json: str, limits: QueryLimits, params: Mapping[str, Any] | None = None) -> SelectReferences:
    """The references of a parsed SELECT. Raises InvalidQuery if anything in it is not allowed, and QueryTooExpensive if
    it is too large to plan."""
    walk = _Parsed()
    with _refusing_unjudged():
        plan = json.loads(plan_json)
        walk.tree(plan, frozenset())
        root = tree(plan)
        check_shape(root, limits)
        check_expansion(root, limits)
        check_literals(root, limits, params or {})
    return SelectReferences(frozenset(walk.tables), frozenset(walk.with_names), frozenset(walk.parameters))


def check_analysed(plan_json: str, costs: QueryBounds) -> int:
    """How often an analysed plan reads tables. Raises InvalidQuery if it reads or calls anything else, and
    QueryTooExpensive if it may cost too much."""
    found = 0
    with _refusing_unjudged():
        plan = json.loads(plan_json)
        for node, is_plan in _every_node(plan, False):
            name = class_name(node)
            is_leaf = is_plan and node.get("num-children") == 0
            if name in _NEVER or (is_leaf and name not in _LEAVES):
                raise _refused(name)
            found += is_leaf and name == "DataSourceV2Relation"
        check_hidden_patterns(plan_json, costs.text)
        PlanCosts(costs.limits, costs.rows, costs.listed).check(tree(plan), costs.most_rows)
    return found


@contextmanager
def _refusing_unjudged() -> Iterator[None]:
    try:
        yield
    except RecursionError as e:
        raise InvalidQuery("sql is nested too deeply; flatten it", field="sql") from e
    except (ArithmeticError, LookupError) as e:  # what cannot be judged is refused, as what is not known
        log.exception("the costs of a query cannot be computed")
        raise InvalidQuery("sql has an expression whose costs cannot be computed; simplify it", field="sql") from e


class _Parsed:
    """Walks the JSON of a plan: lists of nodes in pre-order, with further lists in the nodes' fields."""

    def __init__(self) -> None:
        self.tables: set[TableReference] = set()
        self.with_names: set[str] = set()
        self.parameters: set[str] = set()

    def tree(self, nodes: list[dict[str, Any]], scope: frozenset[str]) -> None:
        end = self.node(nodes, 0, scope)
        if end != len(nodes):
            raise _refused("a plan that cannot be parsed")

    def node(self, nodes: list[dict[str, Any]], place: int, scope: frozenset[str]) -> int:
        node = nodes[place]
        name = class_name(node)
        if (name not in _PLANS and name not in _EXPRESSIONS) or not str(node["class"]).startswith(_PACKAGE):
            raise _refused(name)
        if name == "UnresolvedWith":
            scope = self.with_clause(node, scope)
        elif name == "UnresolvedRelation":
            self.relation(node, scope)
        elif name in ("UnresolvedFunction", "UnresolvedGenerator"):
            _check_function(node)
        elif name == "UnresolvedTableValuedFunction" and str(node["name"]).strip("[]").lower() not in GENERATORS:
            raise _refused(name)
        elif name == "NamedParameter":
            self.parameters.add(str(node["name"]))
        for key, value in node.items():
            blank = key in _BLANK_ANYWHERE or key in _BLANK.get(name, ())
            checked = name == "UnresolvedWith" and key == "cteRelations"
            if not checked and not (value is None and blank):
                self.field(value, scope, f"{name} with {key}")
        place += 1
        for _ in range(node["num-children"]):
            place = self.node(nodes, place, scope)
        return place

    def field(self, value: Any, scope: frozenset[str], where: str) -> None:
        if value is None:
            raise _refused(where)
        if is_tree(value):
            self.tree(value, scope)
        elif isinstance(value, list | dict):
            for item in value.values() if isinstance(value, dict) else value:
                self.field(item, scope, where)

    def with_clause(self, node: dict[str, Any], scope: frozenset[str]) -> frozenset[str]:
        for definition in node["cteRelations"]:
            name, query = fold_case(str(definition["_1"])), definition["_2"]
            if not _WITH_NAME.fullmatch(name):
                # In the JSON, `a, b` and `a`.`b` look the same.
                raise InvalidQuery(f"sql: {name[:80]!r} in WITH must be letters, digits, _ and -", field="sql")
            inner = scope | {name} if node.get("allowRecursion") else scope
            self.field(query, inner, "WITH")
            scope |= {name}
            self.with_names.add(name)
        return scope

    def relation(self, node: dict[str, Any], scope: frozenset[str]) -> None:
        if node.get("isStreaming"):
            raise _refused("STREAM")
        shown = str(node["multipartIdentifier"])
        if fold_case(shown[1:-1]) in scope:
            return
        parts = _NAME.fullmatch(shown)
        if parts is None:
            name = shown[1:-1].replace(", ", ".")[:100]
            raise InvalidQuery(f"sql: {name!r} is not one of your tables; use table or namespace.table", field="sql")
        first, second = parts.groups()
        self.tables.add(TableReference(first, second) if second else TableReference(None, first))


def _check_function(node: dict[str, Any]) -> None:
    given = node.get("nameParts") or (node.get("name") or {}).get("funcName")
    named = _FUNCTION.fullmatch(str(given))
    name = named[1] if named else str(given).strip("[]").replace(", ", ".")
    # A generator's name is an object. A function with a database or catalog in its name is not built in.
    qualified = isinstance(node.get("name"), dict) and not node["name"].keys() <= {"product-class", "funcName"}
    if named is None or qualified or name.lower() not in FUNCTIONS:
        near = nearest(name, FUNCTIONS) if named else None
        hint = f"; did you mean {near!r}?" if near else ""
        raise InvalidQuery(f"sql: the function {name[:80]} cannot be used here{hint}", field="sql", suggestion=near)


def _every_node(value: Any, in_plan: bool) -> Iterator[tuple[dict[str, Any], bool]]:
    if isinstance(value, list):
        # A list is one tree, either only of plans or only of expressions.
        if is_tree(value):
            in_plan = is_plan_class(str(value[0]["class"]))
        for item in value:
            yield from _every_node(item, in_plan)
    elif isinstance(value, dict):
        if "class" in value:
            yield value, in_plan
        for item in value.values():
            yield from _every_node(item, in_plan)


def _refused(name: str) -> InvalidQuery:
    return InvalidQuery(f"sql must be one SELECT over your tables; it cannot use {_WORDS.get(name, name)}", field="sql")
