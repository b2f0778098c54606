"""Crash images of the kernel's ext4 recover in elidefs: the kernel works on a device with a volatile cache, whose durable
content is copied at random moments; everything that was acknowledged before is there, by elidefs and by the kernel."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import failing_store
import harness
import load

ROUNDS = int(os.environ.get("ELIDEFS_KERNEL_CRASHES", "25"))
SEED = int(os.environ.get("ELIDEFS_SEED", "1"))


def acknowledged_in(path):
    """name -> (length, content seed), and the names whose removal had begun."""
    acknowledged, removed = {}, set()
    with open(path) as file:
        for line in file.read().split("\n")[:-1]:
            words = line.split()
            if words[0] == "-":
                removed.add(words[1])
                acknowledged.pop(words[1], None)
            elif len(words) == 3 and words[1].isdigit():
                acknowledged[words[0]] = (int(words[1]), int(words[2]))
    return acknowledged, removed


def check_content(rig, point, acknowledged, what):
    for name, (length, seed) in acknowledged.items():
        try:
            with open(os.path.join(point, name), "rb") as file:
                rig.check(file.read(length) == load.content(seed, length), f"{what}: {name}: the first {length} bytes differ")
        except OSError as error:
            rig.check(False, f"{what}: {name} was synced with {length} bytes: {error}")


def crashes(rig, store, output, source):
    """The images, each with what had been acknowledged."""
    found = []
    for _ in range(ROUNDS):
        time.sleep(source.uniform(0.02, 0.3))
        # Nothing becomes durable while the store stands still, so the copy is of one moment.
        store.process.send_signal(signal.SIGSTOP)
        before = acknowledged_in(output)
        image = rig.new_path("crash")
        shutil.copyfile(store.backing, image)
        store.process.send_signal(signal.SIGCONT)
        found.append((image, *before))
    return found


def test(rig):
    source = random.Random(SEED)
    store = failing_store.FailingStore(rig)
    loop = rig.loop(store.image)
    output = rig.new_path("acknowledged")
    with rig.kernel_mounted(loop) as point:
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", "acknowledged_load.py")
        with open(output, "wb") as file:
            process = subprocess.Popen([sys.executable, "-B", program, point, str(SEED)], stdout=file,
                                       stderr=subprocess.STDOUT)
        harness.wait_until(lambda: os.path.getsize(output) > 0)
        images = crashes(rig, store, output, source)
        process.kill()
        process.wait(timeout=30)
    rig.detach(loop)
    store.close()
    checked = dirty = 0
    for number, (image, acknowledged, removed) in enumerate(images):
        what = f"crash {number} (ELIDEFS_SEED={SEED})"
        with open(image, "rb") as file:
            file.seek(1024 + 0x60)
            dirty += file.read(1)[0] >> 2 & 1
        for_kernel = rig.new_path("copy")
        shutil.copyfile(image, for_kernel)
        with rig.kernel_mounted(for_kernel) as point:
            check_content(rig, point, acknowledged, f"{what}, by the kernel")
            expected = harness.tree(point)
        with rig.mounted(image) as mount:
            check_content(rig, mount.point, acknowledged, f"{what}, by elidefs")
            difference = harness.differences(expected, harness.tree(mount.point))
            rig.check(not difference, f"{what}: recovered by both:\n{difference}")
        rig.check_clean(image, f"{what}, after elidefs")
        checked += len(acknowledged)
        os.unlink(image)
        os.unlink(for_kernel)
    print(f"{len(images)} crashes of the kernel's ext4, {dirty} of them with a log to replay, {checked} acknowledged files checked")
    rig.check(dirty > len(images) // 2 and checked > len(images), "hardly anything was to recover: the test proves nothing")


harness.main(test)
