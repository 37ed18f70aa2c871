#!/usr/bin/env python3
"""Runs the whole test suite on a machine that has nothing but Python and a package registry.

Makes its own environment from the locked requirements, installs this checkout into it, and hands over to pytest,
whose exit status is the verdict. Written in the Python that old interpreters still read, to say what is missing.

usage: python3 run_tests.py [--fast] [--long] [pytest arguments ...]
  --fast   unit and property tests only: no sockets, no processes
  --long   ten times as many random processors as usual: minutes more
  -n 0     all tests in one process, one after another
"""

from __future__ import print_function

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.abspath(__file__))
PYTHON_MIN = (3, 11)
LOCK = os.path.join(ROOT, "requirements", "test.txt")
FAST = ["tests/unit", "tests/property"]
WORKERS_MAX = 4


def main(arguments):
    """The exit status of pytest, or 2 when the machine lacks something."""
    if sys.version_info < PYTHON_MIN:
        return with_newer_python(arguments)
    if "-h" in arguments or "--help" in arguments:
        print(__doc__)
        return 0
    try:
        import ensurepip  # noqa: F401 - Debian ships it apart from Python
        import venv  # noqa: F401
    except ImportError as error:
        return missing("the module %s (on Debian and Ubuntu: apt-get install python3-venv)" % error.name)
    python = environment()
    if python is None:
        return 2
    if "--fast" in arguments:
        arguments = FAST + [word for word in arguments if word != "--fast"]
    clean = dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
    for name in list(clean):
        # Settings of whoever runs the tests must not reach the programs under test.
        if name.startswith(("PAYKIT_", "PYTHONPATH", "PYTEST_")):
            del clean[name]
    if "--long" in arguments:
        arguments = [word for word in arguments if word != "--long"]
        clean["PAYKIT_TEST_LONG"] = "1"
    workers = [] if "-n" in arguments or "--pdb" in arguments else ["-n", str(min(os.cpu_count() or 1, WORKERS_MAX))]
    command = [python, "-m", "pytest", "-p", "no:cacheprovider"] + workers + arguments
    return subprocess.call(command, cwd=ROOT, env=clean)


def with_newer_python(arguments):
    """Starts over with a newer Python from PATH, if there is one."""
    for minor in (14, 13, 12, 11):
        name = "python3.%d" % minor
        for folder in os.environ.get("PATH", "").split(os.pathsep):
            program = os.path.join(folder, name)
            probe = "import sys; sys.exit(sys.version_info < (3, 11))"
            if os.access(program, os.X_OK) and subprocess.call([program, "-c", probe]) == 0:
                return subprocess.call([program, os.path.abspath(__file__)] + arguments)
    return missing("Python 3.11 or newer (this is %d.%d, and PATH has no newer one)" % sys.version_info[:2])


def missing(what):
    """Says what the machine lacks; the exit status for it."""
    print("run_tests.py: this machine lacks %s" % what, file=sys.stderr)
    return 2


def environment():
    """The interpreter of an environment that holds exactly the locked requirements and this checkout.

    It is named after the lock and the interpreter, so a change of either makes a new one, and it counts only once it
    is complete: an interrupted installation is thrown away.
    """
    with open(LOCK, "rb") as lock:
        identity = lock.read() + sys.version.encode() + sys.executable.encode() + ROOT.encode()
    name = ".venv-tests-%d.%d-%s" % (
        sys.version_info[0],
        sys.version_info[1],
        hashlib.sha256(identity).hexdigest()[:12],
    )
    folder = os.path.join(writable_folder(), name)
    python = os.path.join(folder, "Scripts" if os.name == "nt" else "bin", "python")
    complete = os.path.join(folder, "complete")
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet"]
    if not os.path.exists(complete):
        print("run_tests.py: making the environment %s (once, a minute or so)" % folder, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        for step in ([sys.executable, "-m", "venv", folder], pip + ["--require-hashes", "-r", LOCK]):
            if subprocess.call(step) != 0:
                missing("what this step needed: %s" % " ".join(step))
                return None
    # Each time, since the project's own metadata may have changed; the sources themselves are used in place.
    if subprocess.call(pip + ["--no-deps", "--no-build-isolation", "--editable", ROOT]) != 0:
        missing("a working build of the project itself")
        return None
    with open(complete, "w"):
        pass
    return python


def writable_folder():
    """The checkout, or a folder of the user's own when the checkout belongs to somebody else."""
    if os.access(ROOT, os.W_OK):
        return ROOT
    owner = os.getuid() if hasattr(os, "getuid") else "user"
    folder = os.path.join(tempfile.gettempdir(), "paykit-settle-tests-%s" % owner)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if hasattr(os, "getuid") and os.stat(folder).st_uid != os.getuid():
        raise SystemExit("run_tests.py: %s belongs to somebody else" % folder)
    return folder


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
