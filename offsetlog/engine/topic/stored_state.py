"""Opening a topic from what is stored beside its chain, and storing it.

Invariants:

1. Whatever is stale, broken or missing here costs time only: the next older one is tried, and
   at last the chain from entry 0.
2. A snapshot is stored only when every entry below it is durable, and after its leaves.
3. Publishing is best effort: no failure of it, of whatever kind, fails an append or ends the
   thread that writes.
4. A snapshot that lies beyond the end of its chain is neither stale nor broken: the chain lost
   entries, and whoever opens the topic is told so by name.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from offsetlog.core.decode import field, integer
from offsetlog.core.topic.index import Leaf
from offsetlog.core.topic.publish import leaves_to_merge, leaves_to_sort, publish
from offsetlog.core.topic.state import EMPTY_STATE, TopicState
from offsetlog.engine.topic.chain import Ahead, Chain
from offsetlog.errors import CorruptLogError, OffsetLogError
from offsetlog.format import names, notes, snapshots
from offsetlog.logs import get_logger

PUBLISH_EVERY = 32
"""Entries from one stored state to the next, at least."""
REBASE_EVERY = 4096
"""Entries after which a reader looks for a newer stored state to rest on."""
HINT_BYTES = 4096
_HINT = field("seq", integer())
logger = get_logger(__name__)


class StoredState:
    """The snapshots and index leaves of one topic."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._limits = chain.env.limits
        self._leaves: OrderedDict[str, Leaf] = OrderedDict()
        self._lock = chain.env.new_lock()
        self._opening = chain.env.new_lock()
        self._is_open = False
        self._last_published = float("-inf")
        self._looked_at = 0
        chain.open_stored = self.newest_before

    # --- opening ---------------------------------------------------------------------------

    def open(self) -> bool:
        """Begin with the newest stored state at hand; False if that was done before."""
        with self._opening:
            if self._is_open:
                return False
            stored = self.newest() if self._chain.state.tip == 0 else None
            if stored is None:
                self._chain.refresh(asked=2)
            else:
                self._chain.resume(stored)
            self._is_open = True
            return True

    def refresh(self) -> TopicState:
        """Fold up to the end of the chain."""
        if self._is_open or not self.open():
            self._chain.refresh()
            self._rebase_if_long()
        return self._chain.state

    def recent(self) -> TopicState:
        """A state that holds all that was acknowledged ``MAX_AGE_SECONDS`` ago; an older one is
        looked at again."""
        return self.refresh() if self._chain.is_old else self._chain.state

    def advance(self, ahead: Ahead | None = None) -> TopicState:
        """Fold what one request finds."""
        if self._is_open or not self.open():
            self._chain.advance(ahead)
            self._rebase_if_long()
        return self._chain.state

    def newest(self) -> TopicState | None:
        """The newest stored state: the hinted one, else the newest in the listing."""
        hinted = self._hinted()
        if hinted is not None:
            state = self._load(hinted)
            if state is not None:
                return state
        return self.newest_before(None)

    def newest_before(self, number: int | None) -> TopicState | None:
        """The newest sound stored state whose tip is at most ``number``."""
        return next(self._all(number), None)

    def _hinted(self) -> int | None:
        data = self._chain.store.get(names.hint_name(self._chain.folder), 0, HINT_BYTES + 1)
        if data is None:
            return None
        try:
            return notes.decode(_HINT, data, "hint", HINT_BYTES)
        except CorruptLogError:
            return None

    def _load(self, seq: int) -> TopicState | None:
        loaded = self._load_parts(seq)
        if loaded is None or loaded[1] is None:
            return None if loaded is None else loaded[0]
        state, senders_in = loaded
        assert senders_in is not None
        name = str(names.LeafName(self._chain.folder, senders_in))
        try:
            data = self._chain.store.get(name, 0, snapshots.MAX_SNAPSHOT_BYTES + 1)
            return snapshots.decode_senders(state, data or b"", name)
        except CorruptLogError:
            return None

    def _load_parts(self, seq: int) -> tuple[TopicState, str | None] | None:
        """A snapshot as it is stored, without its senders when those are stored apart."""
        name = str(names.SnapshotName(self._chain.folder, seq))
        # One byte more than it may have: what is larger is refused, and not fetched.
        data = self._chain.store.get(name, 0, snapshots.MAX_SNAPSHOT_BYTES + 1)
        if data is None:
            return None
        try:
            state, senders_in = snapshots.decode_snapshot(data, name)
        except CorruptLogError:
            return None
        return (state, senders_in) if state.tip == seq else None

    def _rebase_if_long(self) -> None:
        """Put a state that was folded far on a newer stored one: who only tails a topic would
        hold an extent in memory for each append that it ever saw. Best effort."""
        state = self._chain.state
        if state.tip - max(state.index.seq, self._looked_at) < REBASE_EVERY:
            return
        self._looked_at = state.tip
        try:
            hinted = self._hinted()
            stored = None if hinted is None or hinted <= state.index.seq else self._load(hinted)
            if stored is not None:
                self._chain.rebase(stored)
        except OffsetLogError:
            return

    # --- leaves ----------------------------------------------------------------------------

    def leaf(self, uid: str) -> Leaf | None:
        """A leaf of the index; None when it is missing or broken."""
        with self._lock:
            if uid in self._leaves:
                self._leaves.move_to_end(uid)
                return self._leaves[uid]
        name = str(names.LeafName(self._chain.folder, uid))
        data = self._chain.store.get(name, 0, snapshots.MAX_LEAF_BYTES + 1)
        if data is None:
            return None
        try:
            leaf = snapshots.decode_leaf(data, name)
        except CorruptLogError:
            return None
        self._keep(uid, leaf)
        return leaf

    def _keep(self, uid: str, leaf: Leaf) -> None:
        with self._lock:
            self._leaves[uid] = leaf
            while len(self._leaves) > self._limits.leaves_kept:
                self._leaves.popitem(last=False)

    def at(self, tip: int) -> TopicState:
        """The state after the entries below ``tip``, which were folded already."""
        state = self._chain.state
        if state.tip == tip:
            return state
        stored = self._load(tip) or self.newest_before(tip) or EMPTY_STATE
        return self._chain.fold_aside(stored, tip)

    def recover(self) -> TopicState:
        """A leaf of the chain's state cannot be read: build it upon another stored state."""
        return self._chain.replace_state(self._readable_base(None))

    def readable(self, state: TopicState) -> TopicState:
        """The same state, at the same tip, upon leaves that can be read."""
        return self._chain.fold_aside(self._readable_base(state.tip), state.tip)

    def _readable_base(self, tip: int | None) -> TopicState:
        for stored in self._all(tip):
            if all(self.leaf(ref.uid) is not None for ref in stored.index.leaves):
                return stored
        return EMPTY_STATE

    def _all(self, max_tip: int | None) -> Iterator[TopicState]:
        """The sound stored states whose tip is at most ``max_tip``, from the newest on."""
        folder = names.snapshot_folder(self._chain.folder)
        parsed = (names.parse_snapshot(info.name) for info in self._chain.store.list(folder))
        for seq in sorted((name.seq for name in parsed if name is not None), reverse=True):
            state = self._load(seq) if max_tip is None or seq <= max_tip else None
            if state is not None:
                yield state

    def is_snapshot(self, seq: int) -> bool:
        """Whether what lies at a snapshot's name is a snapshot of this topic's chain."""
        loaded = self._load_parts(seq)
        return loaded is not None and names.topic_folder(loaded[0].topic) == self._chain.folder

    def leaves_of(self, seqs: list[int]) -> set[str] | None:
        """The leaves and sender files that these snapshots need; None if one can't be read."""
        used: set[str] = set()
        for seq in seqs:
            loaded = self._load_parts(seq)
            if loaded is None:
                return None
            state, senders_in = loaded
            used |= {ref.uid for ref in state.index.leaves}
            if senders_in is not None:
                used.add(senders_in)
        return used

    # --- publishing ------------------------------------------------------------------------

    def publish_if_due(self, every: int = PUBLISH_EVERY, min_seconds: float = 1.0) -> bool:
        """Store the present state when the stored one is far behind. Best effort."""
        chain = self._chain
        state = chain.state
        if state.tip - state.index.seq < every:
            return False
        now = chain.env.monotonic()
        if now - self._last_published < min_seconds:
            return False
        self._last_published = now
        try:
            hinted = self._hinted()
            if state.index.seq and (hinted is None or hinted < state.index.seq):
                chain.doubt()  # Ours rests on a snapshot that was hinted at.
            if hinted is not None and hinted > state.index.seq:
                stored = self._load(hinted)
                if stored is not None:
                    state = chain.rebase(stored)
            if state.tip - state.index.seq < every:
                return False
            self.publish()
        except Exception as error:  # noqa: BLE001 - the thread that writes for all must outlive it
            logger.warning("%s: no snapshot was stored: %s", chain.folder, str(error))
            return False
        return True

    def publish(self) -> TopicState:
        """Store the present state, its new leaves first and the hint last."""
        state = self._chain.state
        if state.tip == 0 or (state.tip == state.index.seq and not state.tail_extents):
            return state
        return self._publish(
            leaves_to_merge(state.index, state.tail_extents, self._limits.publishing)
        )

    def tidy(self) -> TopicState:
        """Store the present state as upkeep does: old leaves are sorted too."""
        state = self.publish()
        # Each round leaves fewer to sort, unless a leaf cannot be read.
        for _ in range(len(state.index.leaves)):
            positions = leaves_to_sort(state.index, self._limits.publishing)
            if not positions:
                break
            state = self._publish(positions)
        return state

    def _publish(self, positions: list[int]) -> TopicState:
        chain, store, folder = self._chain, self._chain.store, self._chain.folder
        chain.check_place()
        state = chain.state
        merged = {}
        for position in positions:
            leaf = self.leaf(state.index.leaves[position].uid)
            if leaf is not None:
                merged[position] = leaf
        made = publish(
            state.index,
            state.tip,
            [(part.start, part.tail) for part in state.parts],
            merged,
            iter(chain.env.new_id, ""),
            self._limits.publishing,
        )
        bucket = names.BUCKET_ENTRIES
        for number in range(state.index.seq, state.tip + bucket, bucket):
            store.settle(names.bucket_folder(folder, min(number, state.tip - 1)))
        for uid, leaf in made.leaves:
            data = snapshots.encode_leaf(leaf)
            store.put(str(names.LeafName(folder, uid)), data, durable=False)
            self._keep(uid, leaf)
        apart = None
        senders = snapshots.encode_senders(state, self._limits.many_senders)
        if senders is not None:
            apart = chain.env.new_id()
            store.put(str(names.LeafName(folder, apart)), senders, durable=False)
        data = snapshots.encode_snapshot(state, made.index, apart)
        store.put(str(names.SnapshotName(folder, state.tip)), data, durable=False)
        hint = notes.encode({"seq": state.tip})
        store.put(names.hint_name(folder), hint, durable=False)
        return chain.rebase(state._replace(index=made.index))
