#!/bin/sh
# Has a running Firn compact the tables that are named, one after the other. Needs a POSIX shell and curl.
#
#   FIRN_TENANT=acme scripts/trigger-compaction.sh orders shop/people
#
# A table is TABLE, in the namespace `default`, or NAMESPACE/TABLE.
#   FIRN_URL     where the service is; http://localhost:8080 if it is not set
#   FIRN_TENANT  whose tables
# Exits with 0 if all went well, 1 if a table failed, 2 if it was called wrongly, 3 if the service does not answer.
# A line per table goes to standard output, what is wrong to standard error.

set -u
LC_ALL=C # letters are A to Z wherever this runs
export LC_ALL

url=${FIRN_URL:-http://localhost:8080}
case $url in
  *@*) shown=${url%%//*}//${url##*@} ;; # a login is nobody's business
  *) shown=$url ;;
esac
tenant=${FIRN_TENANT:-}
failed=0
newline='
'

usage() {
  echo "trigger-compaction.sh: $1" >&2
  echo "usage: FIRN_TENANT=tenant [FIRN_URL=http://localhost:8080] trigger-compaction.sh [namespace/]table ..." >&2
  exit 2
}

# Such names need no quoting in JSON. The service knows the finer rules.
check_name() {
  case $1 in
    '' | *[!A-Za-z0-9_-]*) usage "'$1' is no name: use letters, digits, '_' and '-'" ;;
  esac
}

[ -n "$tenant" ] || usage "FIRN_TENANT is not set"
[ $# -gt 0 ] || usage "no table is named"
command -v curl >/dev/null 2>&1 || usage "curl is missing"

check_name "$tenant"
for name in "$@"; do
  case $name in
    */*)
      check_name "${name%%/*}"
      check_name "${name#*/}"
      ;;
    *) check_name "$name" ;;
  esac
done

for name in "$@"; do
  case $name in
    */*) namespace=${name%%/*} table=${name#*/} ;;
    *) namespace=default table=$name ;;
  esac
  body="{\"operation\":\"COMPACT\",\"tenant_id\":\"$tenant\",\"namespace\":\"$namespace\",\"table\":\"$table\"}"
  tries=0
  while :; do
    # The status comes on a line of its own, after the answer.
    if ! answer=$(curl --silent --show-error --write-out '\n%{http_code}' \
      --header 'Content-Type: application/json' --data "$body" "${url%/}/database"); then
      echo "trigger-compaction.sh: no service responds at $shown" >&2
      exit 3
    fi
    status=${answer##*"$newline"}
    said=${answer%"$newline"*}
    said=${said%"$newline"}
    tries=$((tries + 1))
    case $status:$tries in
      429:[123] | 503:[123]) sleep "$tries" ;; # it is busy, or just starting
      *) break ;;
    esac
  done
  case $status:$said in
    200:'{"success":true,'*) echo "$namespace/$table: $said" ;;
    *'{"success":false,'*)
      echo "$namespace/$table: FAILED: $said" >&2
      failed=1
      ;;
    *)
      echo "trigger-compaction.sh: what answers at $shown is not Firn (status $status)" >&2
      exit 3
      ;;
  esac
done
exit "$failed"
