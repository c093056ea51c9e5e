"""What an incremental refresh knows of Spark's functions: those that depend only on their arguments."""

from sqlglot import exp

from service.guard import functions as guard
from service.guard.functions import split_words

SCALAR = split_words(
    """
    abs acos acosh add_months array array_append array_compact array_contains array_distinct array_except array_insert
    array_intersect array_join array_max array_min array_position array_prepend array_remove array_repeat array_size
    array_sort array_union arrays_overlap arrays_zip ascii asin asinh atan atan2 atanh base64 bigint bin binary
    bit_count bit_get bit_length boolean bround btrim cardinality cbrt ceil ceiling char char_length character_length
    chr coalesce concat concat_ws contains conv convert_timezone cos cosh cot crc32 csc date date_add date_diff
    date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayname dayofmonth
    dayofweek dayofyear decimal decode degrees double e element_at elt encode endswith equal_null exp expm1 factorial
    find_in_set flatten float floor format_number format_string from_unixtime from_utc_timestamp get get_json_object
    getbit greatest hash hex hour hypot if ifnull ilike initcap instr int isnan isnotnull isnull json_array_length
    json_object_keys last_day lcase least left len length levenshtein like ln locate log log10 log1p log2 lower lpad
    ltrim luhn_check make_date make_dt_interval make_interval make_timestamp make_timestamp_ltz make_timestamp_ntz
    make_ym_interval map map_concat map_contains_key map_entries map_from_arrays map_from_entries map_keys map_values
    mask md5 minute mod month monthname months_between named_struct nanvl negative next_day not nullif nullifzero nvl
    nvl2 octet_length overlay parse_url pi pmod position positive pow power printf quarter radians regexp regexp_count
    regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace regexp_substr repeat replace reverse
    right rint rlike round rpad rtrim sec second sentences sequence sha sha1 sha2 shiftleft shiftright
    shiftrightunsigned sign signum sin sinh size slice smallint sort_array soundex space split split_part sqrt
    startswith str_to_map string struct substr substring substring_index tan tanh timestamp timestamp_micros
    timestamp_millis timestamp_seconds timestampadd timestampdiff tinyint to_binary to_char to_date to_json to_number
    to_timestamp
    to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp to_varchar translate trim trunc try_add
    try_divide try_element_at try_make_timestamp try_mod try_multiply try_subtract try_to_binary try_to_date
    try_to_number try_to_timestamp ucase unbase64 unhex unix_date unix_micros unix_millis unix_seconds unix_timestamp
    upper url_decode url_encode weekday weekofyear width_bucket xxhash64 year zeroifnull
    """
)
"""Functions of one row. `unix_timestamp` and `to_unix_timestamp` without arguments read the clock."""
AGGREGATES = split_words(
    """
    approx_count_distinct avg bit_and bit_or bit_xor bool_and bool_or corr count count_if covar_pop covar_samp every
    kurtosis max mean median min percentile regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx
    regr_sxy regr_syy skewness some std stddev stddev_pop stddev_samp sum try_avg try_sum var_pop var_samp variance
    """
)
"""Aggregates whose value does not depend on the order of the rows, but for the last digits of floating point."""
COUNTS = split_words("count count_if regr_count approx_count_distinct")
"""Aggregates that are 0 without rows."""
SUMS = split_words(
    """
    avg corr covar_pop covar_samp kurtosis mean regr_avgx regr_avgy regr_intercept regr_r2 regr_slope regr_sxx regr_sxy
    regr_syy skewness std stddev stddev_pop stddev_samp sum try_avg try_sum var_pop var_samp variance
    """
)
"""Aggregates that add, so that their last digits depend on the order of floating-point values."""
EXACT_SUMS = split_words("sum avg mean try_sum try_avg")
"""Those of them that are exact if their argument is."""
PEERS = split_words("rank dense_rank percent_rank cume_dist")
"""Window functions that give rows of equal order equal values."""
PLACES = split_words("row_number ntile lag lead first_value last_value nth_value first last")
"""Window functions that depend on the order of all rows."""
WITH_UNIT = split_words("dateadd date_add datediff date_diff timestampadd timestampdiff")
"""Functions whose first argument is a unit of time if they have three."""
UNITS = split_words("year quarter month week day dayofyear hour minute second millisecond microsecond")
GENERATORS = guard.GENERATORS | {"variant_explode"}
CLOCK = split_words(
    """
    curdate current_date current_time current_timestamp current_timezone localtimestamp now getdate
    current_user user session_user current_catalog current_database current_schema
    """
)
CHANCE = split_words(
    """
    any_value array_agg approx_percentile collect_list collect_set first last listagg max_by min_by mode
    monotonically_increasing_id percentile_approx rand randn random randstr shuffle spark_partition_id string_agg
    uniform uuid input_file_name try_reflect reflect java_method
    """
)
"""Functions that depend on chance or on the order of the rows."""
EXPRESSIONS: tuple[type[exp.Expr], ...] = (
    *(exp.Literal, exp.RawString, exp.HexString, exp.Boolean, exp.Null, exp.Paren, exp.Tuple),
    *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.DPipe, exp.Concat),
    *(exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseNot),
    *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ),
    *(exp.And, exp.Or, exp.Not, exp.Is, exp.Between, exp.In, exp.Like, exp.ILike, exp.Escape, exp.RegexpLike),
    *(
        exp.Case,
        exp.If,
        exp.Cast,
        exp.TryCast,
        exp.DataType,
        exp.DataTypeParam,
        exp.Interval,
        exp.Var,
        exp.IntervalSpan,
    ),
    *(exp.Bracket, exp.Dot, exp.Identifier, exp.Anonymous, exp.Extract, exp.Trim, exp.Substring, exp.StrPosition),
    *(exp.Alias, exp.Overlay),
)
"""The classes of sqlglot's tree that are known to be written as they were read."""
