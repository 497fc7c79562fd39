package offsetlog.segment;

import java.io.IOException;
import java.util.List;
import java.util.Set;

/**
 * The columns of one segment after another, some rows at a time. Used by one thread; its memory is
 * used again from row group to row group and from segment to segment.
 *
 * <p>Invariants:
 *
 * <ol>
 *   <li>The foot is compared with the sum that the log has of it before it is parsed, and a row
 *       group with the sum that the foot has of it before any of it is decoded.
 *   <li>What the headers of its wanted pages say is added up and judged before any of them is
 *       decoded. So is what a segment with gaps says of its offsets, as Python's reader judges it.
 *   <li>Whatever the bytes are, they are rows or {@link Unreadable}; a lack of memory is the latter.
 *   <li>The rows that were stepped to lie in the columns until the next step, and no longer.
 *   <li>{@link #reached} is the offset behind the last row that was stepped to: what is unreadable
 *       lies there or behind it.
 * </ol>
 */
public final class SegmentReader implements AutoCloseable {
  private static final int MOST_ROWS = 16_384;
  private static final int MAX_FOOT = 1 << 26;
  private static final long MICROS = 1000;

  /** What the log says of a segment. */
  public record Ref(
      String name, long base, long end, long records, long size, int footBytes, String footSum) {
    public boolean hasGaps() {
      return records != end - base;
    }
  }

  private final Set<String> wanted;
  private final Codec codec = new Codec();

  /** Null in each row of a segment that has no such column. */
  public final BytesColumn keys = new BytesColumn(codec);

  public final BytesColumn values = new BytesColumn(codec);
  public final LongColumn times = new LongColumn(codec, MICROS);
  public final LongColumn offsets = new LongColumn(codec, 1);
  public final HeadersColumn headers = new HeadersColumn(codec);
  public boolean hasKeys;
  public boolean hasValues;
  public boolean hasHeaders;

  /** Whether offsets are stored; else they count from {@link #firstOffset}. */
  public boolean hasOffsets;

  public long firstOffset;
  private boolean hasTimes;

  private RandomAccess file;
  private Ref ref;
  private Footer footer;
  private byte[] memory = new byte[0];
  private long start;
  private long end;
  private long reached;
  private int next;
  private int left;
  private int given;

  /** The last offset of the row group before, of those that were read; -1: none was. */
  private long before;

  private long bytesChecked;

  /** Of the columns only those are decoded that are wanted. */
  public SegmentReader(Set<String> wanted) {
    this.wanted = wanted;
  }

  public long reached() {
    return reached;
  }

  public long bytesChecked() {
    return bytesChecked;
  }

  /** Begin with a segment, of which the offsets {@code [start, end)} are wanted. */
  public void open(RandomAccess file, Ref ref, long start, long end)
      throws IOException, Unreadable {
    try {
      begin(file, ref, start, end);
    } catch (RuntimeException | StackOverflowError | OutOfMemoryError error) {
      throw unreadable(error);
    }
  }

  private Unreadable unreadable(Throwable error) {
    // What it held is worth more to others now.
    memory = new byte[0];
    return new Unreadable(ref.name + " can't be decoded here: " + error);
  }

  private void begin(RandomAccess file, Ref ref, long start, long end)
      throws IOException, Unreadable {
    closeFile();
    this.file = file;
    this.ref = ref;
    this.start = start;
    this.end = end;
    reached = start;
    next = 0;
    left = 0;
    given = 0;
    before = -1;
    boolean fits = ref.footBytes >= 12 && ref.footBytes <= MAX_FOOT && ref.size > ref.footBytes;
    if (!fits || file.size() != ref.size) {
      throw new Unreadable(ref.name + " has another size than the log says");
    }
    byte[] foot = new byte[ref.footBytes];
    file.read(ref.size - foot.length, foot, foot.length);
    check(foot, foot.length, Footer.sum(ref.footSum), "its footer");
    footer = new Footer(foot, ref.size, ref.records);
    hasKeys = wants("key");
    hasValues = wants("value");
    hasTimes = wants("timestamp");
    hasHeaders = wants("headers");
    hasOffsets = ref.hasGaps();
    if (hasOffsets && !footer.leaves.containsKey("offset")) {
      throw new Unreadable(ref.name + " has gaps and does not say which");
    }
    if (hasOffsets) {
      checkToldOffsets();
    }
    expectGroups();
  }

  /** Tell the file which bytes come, and see that it begins as Parquet does if they begin there. */
  private void expectGroups() throws IOException, Unreadable {
    List<Footer.Group> wanted = footer.groups.stream().filter(this::isWanted).toList();
    if (wanted.isEmpty()) {
      return;
    }
    boolean fromStart = wanted.get(0) == footer.groups.get(0);
    file.expect(fromStart ? 0 : wanted.get(0).start(), wanted.get(wanted.size() - 1).end());
    if (fromStart) {
      byte[] magic = new byte[4];
      file.read(0, magic, magic.length);
      if (Footer.little(magic, 0) != Footer.MAGIC) {
        throw new Unreadable(ref.name + " begins with other bytes than Parquet");
      }
    }
  }

  /**
   * Whether the range may have records of a row group. Offsets ascend, so as many of them lie below
   * and above those of the group as it has records before and behind it.
   */
  private boolean isWanted(Footer.Group group) {
    long behind = ref.records - group.first() - group.records();
    return ref.base + group.first() < end && ref.end - behind > start;
  }

  private boolean wants(String column) {
    return wanted.contains(column) && footer.leaves.containsKey(column);
  }

  /**
   * Step to the next rows.
   *
   * @return how many they are; 0 when all are given
   */
  public int step() throws IOException, Unreadable {
    try {
      return stepOn();
    } catch (RuntimeException | StackOverflowError | OutOfMemoryError error) {
      throw unreadable(error);
    }
  }

  private int stepOn() throws IOException, Unreadable {
    skip(given);
    for (given = 0; given == 0; ) {
      while (left == 0) {
        if (next == footer.groups.size()) {
          reached = end;
          closeFile();
          return 0;
        }
        begin(footer.groups.get(next++));
      }
      given = available();
      if (hasOffsets) {
        given = withinRange(given);
      }
    }
    firstOffset = reached;
    reached = hasOffsets ? offsets.values[offsets.row + given - 1] + 1 : reached + given;
    left -= given;
    return given;
  }

  /** How many rows all columns have at hand. */
  private int available() throws Unreadable {
    int rows = Math.min(left, MOST_ROWS);
    rows = hasKeys ? Math.min(rows, keys.available()) : rows;
    rows = hasValues ? Math.min(rows, values.available()) : rows;
    rows = hasTimes ? Math.min(rows, times.available()) : rows;
    rows = hasHeaders ? Math.min(rows, headers.available()) : rows;
    return hasOffsets ? Math.min(rows, offsets.available()) : rows;
  }

  /** The row group's rows that are in the range, as far as that is known without its offsets. */
  private void begin(Footer.Group group) throws IOException, Unreadable {
    if (!isWanted(group)) {
      return;
    }
    long first = ref.base + group.first();
    long low = hasOffsets ? first : Math.max(start, first);
    long high = hasOffsets ? first + group.records() : Math.min(end, first + group.records());
    int size = (int) (group.end() - group.start());
    Unfolding unfolding = new Unfolding(ref.size);
    unfolding.hold(size);
    if (memory.length < size) {
      memory = new byte[size];
    }
    file.read(group.start(), memory, size);
    check(memory, size, group.sum(), "row group " + (next - 1));
    begin(keys, hasKeys, "key", group, unfolding);
    begin(values, hasValues, "value", group, unfolding);
    begin(times, hasTimes, "timestamp", group, unfolding);
    begin(offsets, hasOffsets, "offset", group, unfolding);
    if (hasHeaders) {
      Footer.Chunk name = group.chunks()[footer.leaves.get("headers").number()];
      Footer.Chunk value = group.chunks()[footer.leaves.get("headers.value").number()];
      headers.begin(memory, group.start(), name, value, group.records(), unfolding);
      headers.load();
    }
    if (hasOffsets) {
      offsets.loadAll(group.records());
      checkOffsets(group);
    }
    left = (int) (high - first);
    skip((int) (low - first));
    left -= (int) (low - first);
  }

  private void begin(
      Column column, boolean isThere, String name, Footer.Group group, Unfolding unfolding)
      throws Unreadable {
    if (isThere) {
      Footer.Leaf leaf = footer.leaves.get(name);
      Footer.Chunk chunk = group.chunks()[leaf.number()];
      int from = (int) (chunk.start() - group.start());
      int to = (int) (chunk.end() - group.start());
      column.begin(memory, from, to, chunk, group.records(), leaf.nullable(), unfolding);
    }
  }

  /** The last offsets of row groups, which the foot may say. */
  private void checkToldOffsets() throws Unreadable {
    long reached = ref.base - 1;
    for (Footer.Group group : footer.groups) {
      byte[] told = toldOffset(group);
      if (told != null) {
        long last = lastOffset(told);
        checkPlace(group, reached + 1, last);
        reached = last;
      }
    }
  }

  private byte[] toldOffset(Footer.Group group) {
    return group.chunks()[footer.leaves.get("offset").number()].greatest();
  }

  private long lastOffset(byte[] told) throws Unreadable {
    if (told.length != Long.BYTES) {
      throw new Unreadable(ref.name + " has statistics of other numbers than offsets");
    }
    return (long) LongColumn.LONG.get(told, 0);
  }

  /** Those of a row group, which are decoded: they ascend, and lie where they can. */
  private void checkOffsets(Footer.Group group) throws Unreadable {
    long[] all = offsets.values;
    int count = group.records();
    for (int i = 1; i < count; i++) {
      if (all[i] <= all[i - 1]) {
        throw misplaced();
      }
    }
    byte[] told = toldOffset(group);
    long last = all[count - 1];
    if (all[0] < ref.base || all[0] <= before || told != null && lastOffset(told) != last) {
      throw misplaced();
    }
    checkPlace(group, all[0], last);
    before = last;
  }

  /** That they have room in {@code [first, last]}, and all others before and behind them. */
  private void checkPlace(Footer.Group group, long first, long last) throws Unreadable {
    long behind = ref.records - group.first() - group.records();
    long low = Math.max(first, ref.base + group.first());
    if (last < 0 || last >= ref.end - behind || last - low + 1 < group.records()) {
      throw misplaced();
    }
  }

  private Unreadable misplaced() {
    return new Unreadable(ref.name + " has offsets that are out of their place");
  }

  /** Of the next rows those whose offsets are in the range; others before them are passed over. */
  private int withinRange(int rows) throws Unreadable {
    int from = offsets.row;
    int low = lowerBound(offsets.values, from, from + rows, start);
    int high = lowerBound(offsets.values, low, from + rows, end);
    if (low > from) {
      skip(low - from);
      left -= low - from;
    }
    if (high == low && high < from + rows) {
      // The range ends here.
      left = 0;
      next = footer.groups.size();
    }
    return high - low;
  }

  private static int lowerBound(long[] values, int low, int high, long wanted) {
    while (low < high) {
      int middle = (low + high) >>> 1;
      if (values[middle] < wanted) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  private void skip(int rows) throws Unreadable {
    if (rows == 0) {
      return;
    }
    if (hasKeys) {
      keys.skip(rows);
    }
    if (hasValues) {
      values.skip(rows);
    }
    if (hasTimes) {
      times.skip(rows);
    }
    if (hasHeaders) {
      headers.skip(rows);
    }
    if (hasOffsets) {
      offsets.skip(rows);
    }
  }

  private void check(byte[] data, int size, long sum, String part) throws Unreadable {
    if (Xxh3.hash(data, 0, size) != sum) {
      throw new Unreadable(ref.name + " has another sum of " + part + " than the log says");
    }
    bytesChecked += size;
  }

  private void closeFile() throws IOException {
    if (file != null) {
      file.close();
      file = null;
    }
  }

  @Override
  public void close() throws IOException {
    codec.close();
    memory = new byte[0];
    closeFile();
  }
}
