"""A device that fails on command: the helper program failing_store serves an image file, alone or below a loop device."""

import os
import subprocess

import harness


class FailingStore:
    """`image` is the file to mount or to put a loop device over; the commands are described in tests/tools/failing_store.cc."""

    def __init__(self, rig, size_mib=64):
        # What is durable.
        self.backing = rig.image(size_mib, "-b", "4096", "-J", "size=8", "-E", "lazy_itable_init=0")
        self.point = rig.new_folder("store")
        self.process = subprocess.Popen([os.path.join(harness.BIN, "failing_store"), self.backing, self.point],
                                        stdin=subprocess.DEVNULL, env=harness.ENVIRONMENT)
        rig.helpers.append(self.process)
        self.image = os.path.join(self.point, "image")
        if not harness.wait_until(lambda: os.path.exists(self.image)):
            raise harness.Failure("failing_store does not serve its image")

    def command(self, text):
        fd = os.open(os.path.join(self.point, "control"), os.O_WRONLY)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)

    def counters(self):
        with open(os.path.join(self.point, "control")) as file:
            return {name: int(value) for name, value in (line.split() for line in file)}

    def close(self):
        harness.run("umount", self.point)
        self.process.wait(timeout=30)
