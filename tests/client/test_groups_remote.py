"""A group on other filesystems: the Delta table on S3, the chain on sftp."""

from __future__ import annotations

import time

import pytest

import offsetlog


@pytest.mark.parametrize("server", ["moto", "sftp"])
def test_two_workers_on_a_server(server, request, tmp_path):
    url, options = request.getfixturevalue(server)
    with offsetlog.open(f"{url}/{tmp_path.name}", **options) as log:
        log.create_topic("orders", 2)
        with log.producer() as producer:
            for n in range(10):
                producer.send("orders", b"%d" % n, partition=n % 2)
        one = log.consumer("billing", ["orders"], auto_offset_reset="earliest")
        got = [r.offset for r in one.poll(5.0)]
        two = log.consumer("billing", ["orders"], auto_offset_reset="earliest")
        deadline = time.monotonic() + 30
        while len(one.assignment()) + len(two.assignment()) != 2 or not two.assignment():
            assert time.monotonic() < deadline
            got += [r.offset for worker in (one, two) for r in worker.poll(0.1)]
        while len(got) < 10:
            assert time.monotonic() < deadline
            got += [r.offset for worker in (one, two) for r in worker.poll(0.1)]
        two.close()
        one.close()
        assert sorted(got) == sorted([*range(5), *range(5)])
        assert log.group("billing").lag() == {("orders", 0): 0, ("orders", 1): 0}
        plan = log.group("billing").reset("orders", to="earliest", dry_run=False)
        assert plan.executed
        assert log.group("billing").describe().total.records == 10
        assert log.maintain()[-1].topic == "__consumer_offsets"
