#!/usr/bin/env bash
# Builds emp-tool, emp-ot and emp-sh2pc from git checkouts, and the drivers against them and against emp-ag2pc:
#
#     build.sh SOURCES OUT [--other]
#
# SOURCES has the checkouts emp-tool, emp-ot, emp-sh2pc and emp-ag2pc, and in its folder 0.3.0 the older emp-tool,
# emp-ot and emp-ag2pc; the programs come into OUT. Refuses other commits than those below, and changed checkouts;
# with --other they are built, and the version that a driver prints says so.
# An emp-ot that has a tuner (since July 2026) is tuned for this machine before it is compiled.
# MARCH names a processor for compilers (default native).
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

declare -A PINS=(
    [emp-tool]=2ea73a31c54091bd15979ff884e24fa77c3f9673
    [emp-ot]=39b207ec320001c0901c62819bf083194026b6a9
    [emp-sh2pc]=c71f9816bcc0755ea55c4dd98624079920d9f4f6
    [emp-ag2pc]=20c6560c645afaad95bf9753712b37c3865b6491
    [0.3.0/emp-tool]=11093a7d2160e7e7a4dcae3ffd9e6935bf2b8c1c
    [0.3.0/emp-ot]=52b32c8371c09c1567e3d650c0f0adfbb229a270
    [0.3.0/emp-ag2pc]=356cfd824772af9334ac9a994d1eec17ab5f565a
)
# Installed ones; emp-ag2pc, and all of 0.3.0, is headers that a driver includes where they are.
PACKAGES=(emp-tool emp-ot emp-sh2pc)
CHECKED=("${PACKAGES[@]}" emp-ag2pc 0.3.0/emp-tool 0.3.0/emp-ot 0.3.0/emp-ag2pc)
MARCH=${MARCH:-native}

fail() {
    echo "build.sh: $1" >&2
    exit 1
}

[[ $# -eq 2 || ($# -eq 3 && $3 == --other) ]] || fail "usage: build.sh SOURCES OUT [--other]"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
sources=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
other=${3:-}

declare -A commits
for package in "${CHECKED[@]}"; do
    # A folder inside another checkout would give that one's commit.
    [[ -e $sources/$package/.git ]] || fail "$sources/$package is no git checkout"
    commit=$(git -C "$sources/$package" rev-parse HEAD)
    changes=
    [[ -z $(git -C "$sources/$package" status --porcelain) ]] || changes=+changes
    if [[ $commit$changes != "${PINS[$package]}" && -z $other ]]; then
        fail "$package is ${commit:0:7}$changes, wanted is ${PINS[$package]:0:7}; --other builds it"
    fi
    commits[$package]=${package##*emp-}-${commit:0:7}$changes
done

version_of() {
    local package joined=
    for package in "$@"; do joined+=${joined:+/}${commits[$package]}; done
    echo "$joined"
}

prefix=$out/installed
build=$out/build
rm -rf "$prefix" "$build"
native=OFF
[[ $MARCH != native ]] || native=ON
tuned=
for package in "${PACKAGES[@]}"; do
    name=EMP_${package#emp-}
    options=(-DCMAKE_BUILD_TYPE=Release "-DCMAKE_INSTALL_PREFIX=$prefix" "-DCMAKE_PREFIX_PATH=$prefix")
    options+=("-D${name^^}_BUILD_TESTS=OFF" "-DCMAKE_CXX_FLAGS=-march=$MARCH" "-DCMAKE_C_FLAGS=-march=$MARCH")
    if [[ $package == emp-tool ]]; then options+=("-DEMP_TOOL_NATIVE_ARCH=$native"); fi
    cmake -S "$sources/$package" -B "$build/$package" "${options[@]}"
    # The tuner writes a header that the library is compiled with, and that is installed for the drivers.
    if [[ $package == emp-ot && -e $sources/emp-ot/tools/tune.cpp ]]; then
        cmake --build "$build/emp-ot" --target tune
        tuned=/tuned
    fi
    cmake --build "$build/$package" --parallel
    cmake --install "$build/$package"
done

libraries=("$prefix"/lib*/libemp-ot.* "$prefix"/lib*/libemp-tool.*)
flags=(-O3 "-march=$MARCH" -DNDEBUG -Wno-ignored-attributes)
compile() { # DRIVER VERSION OPTIONS...
    "${CXX:-c++}" "${flags[@]}" "-DEMP_VERSION=\"$2/$MARCH\"" "${@:3}" "$here/$1.cpp" -o "$out/$1" \
        "${libraries[@]}" -lssl -lcrypto -pthread
}
version=$(version_of "${PACKAGES[@]}")$tuned
for driver in emp_garbling emp_ot emp_sh2pc emp_circuit; do
    compile "$driver" "$version" -std=c++20 "-I$prefix/include"
done
compile emp_ag2pc_dev "$(version_of emp-tool emp-ot emp-ag2pc)$tuned" -std=c++20 "-I$prefix/include" \
    "-I$sources/emp-ag2pc"
# The compiled part of emp-tool 0.3.0 is one file that a circuit by C2PC needs.
old=$sources/0.3.0
libraries=("$old/emp-tool/emp-tool/emp-tool.cpp")
compile emp_ag2pc "0.3.0/$(version_of 0.3.0/emp-tool 0.3.0/emp-ot 0.3.0/emp-ag2pc)" -std=c++17 \
    -isystem "$old/emp-tool" -isystem "$old/emp-ot" -isystem "$old/emp-ag2pc"
echo "built $out: $version/$MARCH"
