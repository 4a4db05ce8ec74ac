"""What a test does with the fixture: a lock whose holder loses its session, and a response that is lost."""
import pytest
from kazoo.client import KazooClient


@pytest.fixture
def connect(zookeeper):
    clients = []

    def connect():
        client = KazooClient(hosts=zookeeper.hosts, timeout=4)
        client.start()
        clients.append(client)
        return client

    yield connect
    for client in clients:
        client.stop()


def test_session_of_the_holder_ends(zookeeper, connect):
    holder, other = connect(), connect()
    assert holder.Lock("/locks/job").acquire()
    assert not other.Lock("/locks/job").acquire(blocking=False)
    zookeeper.expire(holder.client_id[0])
    assert other.Lock("/locks/job").acquire(timeout=5)


def test_response_is_lost(zookeeper, connect):
    client = connect()
    zookeeper.inject("After(create).Once().DropReply().Close()")
    with pytest.raises(Exception):
        client.create("/once")
    assert client.retry(client.exists, "/once")


def test_reset_empties_the_server(zookeeper, connect):
    client = connect()
    client.create("/once")
    zookeeper.reset()
    assert not connect().exists("/once")
