#!/usr/bin/env bash
# Written by `python -m ci.matrix` from ci/lanes.toml: change that file or ci/*.py, not this one.
# ASSAY_LANE, of a build by hand, names one lane. ASSAY_SCHEDULE, of a scheduled build, names a schedule. A build without either is one of a
# pull request, which gets the lanes that its changed files can reach, or of a merge.
set -euo pipefail

upload() {
    for lane in "$@"; do
        # What the shell of a job expands is not for the agent that uploads it.
        buildkite-agent pipeline upload --no-interpolation ".buildkite/lanes/$lane.yml"
    done
}

if [[ -n ${ASSAY_LANE:-} ]]; then
    if [[ ! $ASSAY_LANE =~ ^[a-z0-9-]+$ || ! -f .buildkite/lanes/$ASSAY_LANE.yml ]]; then
        echo "ASSAY_LANE=$ASSAY_LANE: .buildkite/lanes has no such lane" >&2
        exit 2
    fi
    upload "$ASSAY_LANE"
    exit
fi

schedule=merge
[[ ${BUILDKITE_PULL_REQUEST:-false} == false ]] || schedule=pull_request
schedule=${ASSAY_SCHEDULE:-$schedule}
case $schedule in
    pull_request) lanes=(cpu) ;;
    merge) lanes=(cpu) ;;
    nightly) lanes=(engines mooncake) ;;
    weekly) lanes=(soak soak-h100 omni-h100 duplex-h100 transfer-h100 prefix-cache-h100 transfer-2-cards transfer-4-cards) ;;
    *)
        echo "ASSAY_SCHEDULE=$schedule: no lane has such a schedule" >&2
        exit 2
        ;;
esac
if [[ $schedule != pull_request ]]; then
    upload "${lanes[@]}"
    exit
fi

git fetch --no-tags origin "+refs/heads/$BUILDKITE_PULL_REQUEST_BASE_BRANCH:refs/remotes/origin/assay-base"
base=$(git merge-base HEAD refs/remotes/origin/assay-base)
python3.11 -m venv build/reader
build/reader/bin/python -m pip install --quiet --constraint requirements.lock pytest
affected=$(build/reader/bin/python -m ci.affected --base "$base")
for lane in "${lanes[@]}"; do
    if grep --quiet --fixed-strings --line-regexp "$lane" <<< "$affected"; then
        upload "$lane"
    fi
done
