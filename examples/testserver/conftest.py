"""pytest fixtures: a ZooKeeper server for each test, from "zklock serve"."""
import subprocess
import urllib.request

import pytest


class Server:
    def __init__(self, *options):
        self.process = subprocess.Popen(
            ["zklock", "serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        said = self.process.stderr.readline()
        self.hosts = self.process.stdout.readline().strip()  # for KazooClient(hosts=...)
        if not self.hosts:
            raise RuntimeError("zklock serve did not start: " + said + self.process.stderr.read())
        self.control = said.removeprefix("zklock: control at ").strip()

    def call(self, method, path, body=""):
        """The server's --control port: its / says what there is."""
        request = urllib.request.Request(self.control + "/" + path, body.encode(), method=method)
        with urllib.request.urlopen(request) as response:
            return response.read().decode()

    def expire(self, session):
        self.call("DELETE", f"sessions/{session:#x}")

    def inject(self, fault):
        self.call("POST", "faults", fault)

    def close(self):
        self.process.terminate()
        self.process.communicate(timeout=10)


@pytest.fixture
def zookeeper():
    server = Server()
    yield server
    server.close()
