#!/bin/sh
# Measures the archive against its peers and installs those that are missing
# (Debian, as root). Environment:
#   BENCH_FULL=1      the full sizes: 4 GiB, 100,000 files, up to 1,000,000 files
#   BENCH_DIR         where to work (a real disk; default: the temporary folder)
#   BENCH_ROUNDS, BENCH_LARGE_MIB, BENCH_FILES, BENCH_SCALE   single sizes
#   BENCH_PARTS=large,small,scale,runs                        only these
set -eu
cd "$(dirname "$0")/.."
for p in restic:restic borg:borgbackup openssl:openssl; do
	command -v "${p%%:*}" >/dev/null || apt-get install -y --no-install-recommends "${p##*:}"
done
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
${GO:-go} build -o "$built" ./bench/archive ./cmd/assay
ASSAY="$built/assay" "$built/archive" "$@"
