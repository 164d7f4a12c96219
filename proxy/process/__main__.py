"""`python -m proxy.process`: one worker process, which the control process starts (`proxy.process.life`)."""

import sys

from proxy.system import compiled

if __name__ == "__main__":
    compiled.install()
    from proxy.process.worker import main

    sys.exit(main(int(sys.argv[1]), sys.argv[2]))
