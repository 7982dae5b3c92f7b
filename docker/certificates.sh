#!/bin/sh
# The certificates step of compose.yml: an authority, and for each party a volume with
# its own key. The authority's key stays in a volume that no other step mounts.
set -eu
test -e /for/client_10/client.key && exit 0
give() { # give NAME FOLDER FILE
  cp "/authority/pki/$1.crt" "/for/$2/$3.crt"
  cp "/authority/pki/$1.key" "/for/$2/$3.key"
  cp /authority/pki/ca.crt "/for/$2/ca.crt"
  chown -R leeway "/for/$2"
}
leeway certs init /authority/pki
leeway certs server /authority/pki --host server
give server server server
leeway certs client /authority/pki --observer --name health
give health server health
for i in 1 2 3 4 5 6 7 8 9 10; do
  leeway certs client /authority/pki "client_$i"
  give "client_$i" "client_$i" client
done
