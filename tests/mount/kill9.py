"""kill -9 of the daemon in the middle of a load, again and again: everything acknowledged is there at the next mount, by
elidefs and by the kernel, each on a copy of its own. This tests the journal; only a power cut tests the flushing.
"""

import os
import random
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import harness
import load

ROUNDS = int(os.environ.get("ELIDEFS_KILLS", "50"))
SEED = int(os.environ.get("ELIDEFS_SEED", "1"))
LOADS = 2


def run_load_and_kill(rig, mount, round_seed, seconds):
    """Returns what was acknowledged: name -> (length, content seed), and the names whose removal had begun."""
    outputs = []
    processes = []
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", "acknowledged_load.py")
    for number in range(LOADS):
        outputs.append(rig.new_path("acknowledged"))
        with open(outputs[-1], "wb") as file:
            processes.append(subprocess.Popen([sys.executable, "-B", program, mount.point, str(round_seed * 10 + number)],
                                              stdout=file, stderr=subprocess.STDOUT))
    harness.wait_until(lambda: all(os.path.getsize(output) > 0 for output in outputs))
    time.sleep(seconds)
    mount.kill()
    for process in processes:
        process.wait(timeout=30)
    acknowledged, removed = {}, set()
    for output in outputs:
        with open(output) as file:
            for line in file.read().splitlines():
                words = line.split()
                if words[0] == "-" and len(words) == 2:
                    removed.add(words[1])
                    acknowledged.pop(words[1], None)
                elif len(words) == 3 and words[1].isdigit():
                    acknowledged[words[0]] = (int(words[1]), int(words[2]))
                else:
                    raise harness.Failure(f"the load said: {line}")
        os.unlink(output)
    return acknowledged, removed


def check_content(rig, point, acknowledged, removed, what):
    for name, (length, seed) in acknowledged.items():
        try:
            with open(os.path.join(point, name), "rb") as file:
                found = file.read(length)
        except OSError as error:
            rig.check(False, f"{what}: {name} was synced with {length} bytes: {error}")
            continue
        rig.check(found == load.content(seed, length), f"{what}: {name}: the first {length} bytes differ")
    return len(acknowledged)


def test(rig):
    source = random.Random(SEED)
    checked = 0
    for number in range(ROUNDS):
        what = f"round {number} (ELIDEFS_SEED={SEED})"
        if number % 10 == 0:
            image = rig.image(64, "-b", "1024" if number % 20 == 0 else "4096", "-J", "size=4")
            standing = {}
        mount = rig.mount(image)
        check_content(rig, mount.point, standing, set(), f"{what}, before")
        acknowledged, removed = run_load_and_kill(rig, mount, number, source.uniform(0.01, 0.4))
        standing.update(acknowledged)
        for name in removed:
            standing.pop(name, None)
        for_kernel = rig.new_path("copy")
        shutil.copyfile(image, for_kernel)
        with rig.kernel_mounted(for_kernel) as point:
            check_content(rig, point, standing, removed, f"{what}, by the kernel")
        rig.check_clean(for_kernel, f"{what}, after the kernel's replay")
        os.unlink(for_kernel)
        # A copy is replayed and judged; the image itself goes on dirty into the next round.
        for_elidefs = rig.new_path("copy")
        shutil.copyfile(image, for_elidefs)
        with rig.mounted(for_elidefs) as again:
            checked += check_content(rig, again.point, standing, removed, f"{what}, by elidefs")
        rig.check_clean(for_elidefs, f"{what}, after replay by elidefs")
        os.unlink(for_elidefs)
        if len(rig.failures) > 5:
            break
    print(f"{ROUNDS} kills, {checked} acknowledged files checked", flush=True)
    rig.check(checked > ROUNDS, "hardly anything was acknowledged: the test proves nothing")


harness.main(test)
