#!/bin/sh
# The first step of compose.yml: a run that has ended is not started again in silence.
set -eu
test -e /state/run.db || exit 0
case $(leeway show /state --json | tr -d ' \n') in
  *'"status":"done"'*) how=done ;;
  *'"status":"failed"'*) how=failed ;;
  *) exit 0 ;; # interrupted: it goes on where it was
esac
echo "The run of this project is $how; it is in the volume 'state':"
leeway drift /state || true
echo "'docker compose -f docker/compose.yml down -v' forgets it, and the next 'up' starts a new one."
exit 1
