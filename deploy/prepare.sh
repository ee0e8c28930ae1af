#!/bin/sh
# Makes the folder `members` for compose.yaml: keys, one session file, and a certificate of its own for HTTPS.
# For a trial alone: all secret keys are on this machine. Between hosts each member makes its own.
set -eu
umask 077
cd "$(dirname "$0")"
mkdir members
cd members
mkdir caddy aggregator alice bob carol

cat > session.toml <<'END'
protocol = "secagg"
version = 3

[parameters]
length = 2
kind = "integer"
lower = 0
upper = 100

END
smpc-dp keygen aggregator --role aggregator --address wss://hub.example.org/smpc --out aggregator/keys >> session.toml
for name in alice bob carol; do
    echo >> session.toml
    smpc-dp keygen "$name" --out "$name/keys" >> session.toml
done
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 30 -subj /CN=hub.example.org \
    -addext subjectAltName=DNS:hub.example.org -keyout caddy/hub.key -out caddy/hub.pem 2> /dev/null
echo '[1, 10]' > alice/alice.json
echo '[2, 20]' > bob/bob.json
echo '[3, 30]' > carol/carol.json
for name in aggregator alice bob carol; do
    cp session.toml "$name"
    cp caddy/hub.pem "$name"
done
smpc-dp roster session.toml

# The containers run as user 1000; of rootless podman `podman unshare chown -R 1000 aggregator alice bob carol`.
if [ "$(id -u)" = 0 ]; then
    chown -R 1000 aggregator alice bob carol
fi
