package offsetlog.spark.sink;

import java.io.IOException;

/** The rows of a task for one partition: a row group in memory, and the segment it will be in. */
final class PartitionWriter {
  /** So many rows, or about so many bytes, are one row group. */
  private static final int GROUP_ROWS = 65_536;

  private static final int GROUP_BYTES = 16 << 20;

  /** Of a segment: a reader bounds what a footer may describe. */
  private static final int MOST_GROUPS = 1000;

  private final Topic topic;
  private final int partition;
  private final TaskFiles files;
  private final Message.Share share;
  private final Compressor compressor;
  private final Bytes memory;
  private final RowBatch rows = new RowBatch();
  private SegmentFile file;
  private SegmentEncoder encoder;
  private Totals segment = new Totals();

  PartitionWriter(
      Topic topic,
      int partition,
      TaskFiles files,
      Message.Share share,
      Compressor compressor,
      Bytes memory) {
    this.topic = topic;
    this.partition = partition;
    this.files = files;
    this.share = share;
    this.compressor = compressor;
    this.memory = memory;
  }

  int partition() {
    return partition;
  }

  RowBatch rows() {
    return rows;
  }

  void add(Row row) throws IOException {
    long before = segment.bytes + rows.recordBytes;
    if (before + row.bytes > topic.segmentBytes() && segment.records + rows.rows > 0) {
      endSegment();
    } else if (rows.rows == GROUP_ROWS || rows.recordBytes >= GROUP_BYTES) {
      endGroup();
    }
    rows.add(row, compressor);
  }

  /** Writes the rows that are in memory. */
  void endGroup() throws IOException {
    if (rows.rows == 0) {
      return;
    }
    boolean isFull = encoder != null && encoder.groups() >= MOST_GROUPS;
    if (isFull || encoder != null && !encoder.fits(rows)) {
      endFile();
    }
    if (encoder == null) {
      file = files.open(topic, partition);
      encoder = new SegmentEncoder(file, memory, rows.hasKeys(), rows.hasHeaders());
    }
    encoder.write(rows, compressor);
    segment.add(rows);
    rows.clear();
  }

  /** Writes all that there is, and ends its segment. */
  void endSegment() throws IOException {
    endGroup();
    if (encoder != null) {
      endFile();
    }
  }

  private void endFile() throws IOException {
    SegmentEncoder.Foot foot = encoder.finish();
    files.name(file);
    share.addPart(partition, segment, topic.tip(), file.id, foot);
    file = null;
    encoder = null;
    segment = new Totals();
  }
}
