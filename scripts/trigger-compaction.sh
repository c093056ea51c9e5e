#!/bin/sh
# Asks a running Firn to compact the named tables, one after another. Needs a POSIX shell and curl.
#
#   FIRN_TENANT=acme scripts/trigger-compaction.sh orders shop/people
#
# A table is TABLE, in the namespace `default`, or NAMESPACE/TABLE.
#   FIRN_URL     the service's address; default: http://localhost:8080
#   FIRN_TENANT  the tenant that owns the tables
#   FIRN_API_KEY an API key with the role writer, if the service needs one
# Exits with 0 if everything succeeded, 1 if a table failed, 2 if the usage is wrong, 3 if no service responds.
# Prints a line per table to standard output, and errors to standard error.

set -u
LC_ALL=C # letters are A to Z in every locale
export LC_ALL

url=${FIRN_URL:-http://localhost:8080}
case $url in
  *@*) shown=${url%%//*}//${url##*@} ;; # do not print a login
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

# Names of these characters need no quoting in JSON. The service checks the other rules.
check_name() {
  case $1 in
    '' | *[!A-Za-z0-9_-]*) usage "'$1' is not a name: use letters, digits, '_' and '-'" ;;
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
    # The status is on the last line, after the response.
    # The key comes from stdin, because other users can see the arguments of a program.
    if ! output=$(printf '%s' "${FIRN_API_KEY:+X-Api-Key: $FIRN_API_KEY}" | curl --silent --show-error \
      --write-out '\n%{http_code}' --header 'Content-Type: application/json' --header @- --data "$body" \
      "${url%/}/database"); then
      echo "trigger-compaction.sh: no service responds at $shown" >&2
      exit 3
    fi
    status=${output##*"$newline"}
    response=${output%"$newline"*}
    response=${response%"$newline"}
    tries=$((tries + 1))
    case $status:$tries in
      429:[123] | 503:[123]) sleep "$tries" ;; # busy or starting
      *) break ;;
    esac
  done
  case $status:$response in
    200:'{"success":true,'*) echo "$namespace/$table: $response" ;;
    *'{"success":false,'*)
      echo "$namespace/$table: FAILED: $response" >&2
      failed=1
      ;;
    *)
      echo "trigger-compaction.sh: the server at $shown is not Firn (status $status)" >&2
      exit 3
      ;;
  esac
done
exit "$failed"
