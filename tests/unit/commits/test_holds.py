"""Merges beside edits that write files again: they wait for those before, and later ones leave files in place."""

import threading

from service.commits.holds import SnapshotHolds

WAIT_S = 30


def test_a_merge_waits_for_edits_that_may_write_files_again() -> None:
    holds, merging, done = SnapshotHolds(), threading.Event(), threading.Event()

    def merge() -> None:
        with holds.merging("t"):
            merging.set()
            done.wait(WAIT_S)

    thread = threading.Thread(target=merge)
    with holds.rewriting("t") as may_rewrite, holds.rewriting("other"):
        assert may_rewrite
        thread.start()
        while not holds.is_merged("t"):
            pass
        assert not merging.is_set()
        with holds.rewriting("t") as may_rewrite:
            assert not may_rewrite
    assert merging.wait(WAIT_S)
    done.set()
    thread.join(WAIT_S)
    with holds.rewriting("t") as may_rewrite:
        assert may_rewrite


def test_a_merge_does_not_wait_for_edits_of_other_tables() -> None:
    holds = SnapshotHolds()
    with holds.rewriting("other"), holds.merging("t"):
        assert holds.is_merged("t")
        assert not holds.is_merged("other")
