"""Makes a release, and checks it as an operator would use it. Not shipped.

    python -m release build      what is released, into dist/ (`make release`)
    python -m release check      installs only that, with each Python here, and uses it (`make release-check`)
    python -m release sample     keeps what a release writes, for tests of later ones (tests/packaging/samples)

`build` and `sbom` need the packages of requirements/release.txt only; `check` and `sample` start real brokers.
"""
