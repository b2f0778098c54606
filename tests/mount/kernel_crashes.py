"""Crash images of the kernel's ext4 recover in elidefs: the kernel works on a device with a volatile cache, whose durable
content is copied at random moments; everything that was acknowledged before is there, by elidefs and by the kernel."""

import os
import random
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import acknowledged
import failing_store
import harness

ROUNDS = int(os.environ.get("ELIDEFS_KERNEL_CRASHES", "25"))
SEED = int(os.environ.get("ELIDEFS_SEED", "1"))


def crashes(rig, store, output, source):
    """The images, each with what had been acknowledged."""
    found = []
    for _ in range(ROUNDS):
        time.sleep(source.uniform(0.02, 0.3))
        # Nothing becomes durable while the store stands still, so the copy is of one moment.
        store.process.send_signal(signal.SIGSTOP)
        try:
            if not harness.wait_until(lambda: harness.process_state(store.process.pid) == "T"):
                raise harness.Failure("failing_store does not stop")
            before, _ = acknowledged.reported(output)
            image = rig.copy_of(store.backing)
        finally:
            store.process.send_signal(signal.SIGCONT)
        found.append((image, before))
    return found


def test(rig):
    source = random.Random(SEED)
    store = failing_store.FailingStore(rig)
    loop = rig.loop(store.image)
    output = rig.new_path("acknowledged")
    with rig.kernel_mounted(loop) as point:
        process = acknowledged.start_load(point, SEED, output)
        images = crashes(rig, store, output, source)
        process.kill()
        process.wait(timeout=30)
    rig.detach(loop)
    store.close()
    checked = dirty = 0
    for number, (image, synced) in enumerate(images):
        what = f"crash {number} (ELIDEFS_SEED={SEED})"
        with open(image, "rb") as file:
            file.seek(1024 + 0x60)
            dirty += file.read(1)[0] >> 2 & 1
        for_kernel = rig.copy_of(image)
        with rig.kernel_mounted(for_kernel) as point:
            acknowledged.check(rig, point, synced, f"{what}, by the kernel")
            expected = harness.tree(point)
        with rig.mounted(image) as mount:
            acknowledged.check(rig, mount.point, synced, f"{what}, by elidefs")
            difference = harness.differences(expected, harness.tree(mount.point))
            rig.check(not difference, f"{what}: recovered by both:\n{difference}")
        rig.check_clean(image, f"{what}, after elidefs")
        checked += len(synced)
        os.unlink(image)
        os.unlink(for_kernel)
    print(f"{len(images)} crashes of the kernel's ext4, {dirty} of them with a log to replay, {checked} acknowledged files checked")
    rig.check(dirty > len(images) // 2 and checked > len(images), "hardly anything was to recover: the test proves nothing")


harness.main(test)
