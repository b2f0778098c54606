"""kill -9 of the daemon in the middle of a load, again and again: everything acknowledged is there at the next mount, by
elidefs and by the kernel, each on a copy of its own. This tests the journal; only a power cut tests the flushing.
"""

import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import acknowledged
import harness

ROUNDS = int(os.environ.get("ELIDEFS_KILLS", "50"))
SEED = int(os.environ.get("ELIDEFS_SEED", "1"))
LOADS = 2
ROUNDS_AN_IMAGE = 10
# Room for all that so many rounds can leave behind, 12 MB a load, on a machine however fast; the rest is the format's.
IMAGE_MIB = ROUNDS_AN_IMAGE * LOADS * 12 + 80


def run_load_and_kill(rig, mount, round_seed, seconds):
    """Returns what was acknowledged: name -> (length, content seed), and the names whose removal had begun."""
    outputs = [rig.new_path("acknowledged") for _ in range(LOADS)]
    processes = [acknowledged.start_load(mount.point, round_seed * 10 + number, output)
                 for number, output in enumerate(outputs)]
    time.sleep(seconds)
    mount.kill()
    for process in processes:
        process.wait(timeout=30)
    synced, removed = {}, set()
    for output in outputs:
        of_one = acknowledged.reported(output)
        synced.update(of_one[0])
        removed.update(of_one[1])
        os.unlink(output)
    return synced, removed


def test(rig):
    source = random.Random(SEED)
    checked = 0
    for number in range(ROUNDS):
        what = f"round {number} (ELIDEFS_SEED={SEED})"
        if number % ROUNDS_AN_IMAGE == 0:
            block_bytes = "1024" if number // ROUNDS_AN_IMAGE % 2 == 0 else "4096"
            image = rig.image(IMAGE_MIB, "-b", block_bytes, "-J", "size=4")
            standing = {}
        mount = rig.mount(image)
        acknowledged.check(rig, mount.point, standing, f"{what}, before")
        synced, removed = run_load_and_kill(rig, mount, number, source.uniform(0.01, 0.4))
        standing.update(synced)
        for name in removed:
            standing.pop(name, None)
        for_kernel = rig.copy_of(image)
        with rig.kernel_mounted(for_kernel) as point:
            acknowledged.check(rig, point, standing, f"{what}, by the kernel")
        rig.check_clean(for_kernel, f"{what}, after the kernel's replay")
        os.unlink(for_kernel)
        # A copy is replayed and judged; the image itself goes on dirty into the next round.
        for_elidefs = rig.copy_of(image)
        with rig.mounted(for_elidefs) as again:
            checked += acknowledged.check(rig, again.point, standing, f"{what}, by elidefs")
        rig.check_clean(for_elidefs, f"{what}, after replay by elidefs")
        os.unlink(for_elidefs)
        if len(rig.failures) > 5:
            break
    print(f"{ROUNDS} kills, {checked} acknowledged files checked", flush=True)
    rig.check(checked > ROUNDS, "hardly anything was acknowledged: the test proves nothing")


harness.main(test)
