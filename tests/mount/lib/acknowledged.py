"""What `acknowledged_load.py` reported, and whether it is still there."""

import os
import subprocess
import sys

import harness
import load


def start_load(folder, seed, output):
    """The load as a process of its own that writes into the file `output`; returns when the first sync is acknowledged."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "acknowledged_load.py")
    with open(output, "wb") as file:
        process = subprocess.Popen([sys.executable, "-B", program, folder, str(seed)], stdout=file, stderr=subprocess.STDOUT)
    if not harness.wait_until(lambda: os.path.getsize(output) > 0):
        raise harness.Failure("the load does not start")
    return process


def reported(output):
    """name -> (length, content seed), and the names whose removal had begun. A last line without its end is not counted."""
    acknowledged, removed = {}, set()
    with open(output) as file:
        for line in file.read().split("\n")[:-1]:
            words = line.split()
            if words[0] == "-" and len(words) == 2:
                removed.add(words[1])
                acknowledged.pop(words[1], None)
            elif len(words) == 3 and words[1].isdigit():
                acknowledged[words[0]] = (int(words[1]), int(words[2]))
            else:
                raise harness.Failure(f"the load said: {line}")
    return acknowledged, removed


def check(rig, point, acknowledged, what):
    for name, (length, seed) in acknowledged.items():
        try:
            with open(os.path.join(point, name), "rb") as file:
                found = file.read(length)
        except OSError as error:
            rig.check(False, f"{what}: {name} was synced with {length} bytes: {error}")
            continue
        rig.check(found == load.content(seed, length), f"{what}: {name}: the first {length} bytes differ")
    return len(acknowledged)
