"""pytest fixture: a ZooKeeper server for each test, from "zklock serve"."""
import subprocess
import urllib.request
import pytest

class Server:
    def __init__(self, *options):
        command = ["zklock", "serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        said = self.process.stderr.readline()
        self.hosts = self.process.stdout.readline().strip()  # for KazooClient(hosts=...)
        assert self.hosts, "zklock serve did not start: " + said + self.process.stderr.read()
        self.control = said.removeprefix("zklock: control at ").strip()  # its / describes the requests
    def call(self, method, path, body=""):
        urllib.request.urlopen(urllib.request.Request(self.control + "/" + path, body.encode(), method=method)).close()
    def expire(self, session): self.call("DELETE", f"sessions/{session:#x}")
    def inject(self, fault): self.call("POST", "faults", fault)
    def reset(self): self.call("POST", "reset"); self.call("DELETE", "faults")

@pytest.fixture
def zookeeper():
    server = Server()
    yield server
    server.process.terminate()
    server.process.communicate(timeout=10)
