package offsetlog.spark.sink;

import java.io.IOException;
import java.util.TreeMap;
import org.apache.spark.unsafe.types.UTF8String;

/** The rows of a task for one topic. */
final class TopicWriter implements AutoCloseable {
  final Topic topic;
  final UTF8String name;
  private final TaskFiles files;
  private final Message.Share share;
  private final Compressor compressor;
  private final Bytes memory;
  private final TreeMap<Integer, PartitionWriter> all = new TreeMap<>();
  private final PartitionWriter[] near;

  /** Looked up by their number without a box, as nearly all are. */
  private static final int NEAR = 1024;

  TopicWriter(Topic topic, TaskFiles files, Message message, Compressor compressor, Bytes memory) {
    this.topic = topic;
    name = UTF8String.fromString(topic.name());
    this.files = files;
    this.share = message.share(topic);
    this.compressor = compressor;
    this.memory = memory;
    near = new PartitionWriter[Math.min(topic.partitions(), NEAR)];
  }

  /** Takes a row; whether it can be written here. {@code spread}: where rows without a key go. */
  boolean add(Row row, long spread) throws IOException {
    boolean lacksKey = topic.needsKey() && row.key == null;
    if (lacksKey
        || row.bytes > topic.maxMessageBytes()
        || row.partition >= topic.partitions()) {
      return false;
    }
    writer(partition(row, spread)).add(row);
    return true;
  }

  private int partition(Row row, long spread) {
    if (row.partition >= 0) {
      return row.partition;
    }
    if (row.key != null) {
      return Murmur2.partition(row.key, topic.partitions());
    }
    return (int) Math.floorMod(spread, (long) topic.partitions());
  }

  private PartitionWriter writer(int partition) {
    PartitionWriter writer = partition < near.length ? near[partition] : all.get(partition);
    if (writer == null) {
      writer = new PartitionWriter(topic, partition, files, share, compressor, memory);
      all.put(partition, writer);
      if (partition < near.length) {
        near[partition] = writer;
      }
    }
    return writer;
  }

  /** Writes the rows that are in memory. */
  void endGroups() throws IOException {
    for (PartitionWriter writer : all.values()) {
      writer.endGroup();
      if (files.isFull()) {
        writer.endSegment();
      }
    }
  }

  /** Writes all that there is, and ends all segments. */
  void endSegments() throws IOException {
    for (PartitionWriter writer : all.values()) {
      writer.endSegment();
    }
  }

  /** Puts all rows, which are few, into the message. */
  void handOver() throws IOException {
    boolean hasKeys = false;
    boolean hasHeaders = false;
    for (PartitionWriter writer : all.values()) {
      hasKeys |= writer.rows().hasKeys();
      hasHeaders |= writer.rows().hasHeaders();
    }
    Bytes out = new Bytes(4096);
    SegmentEncoder encoder = new SegmentEncoder(out::write, memory, hasKeys, hasHeaders);
    for (PartitionWriter writer : all.values()) {
      RowBatch rows = writer.rows();
      if (rows.rows > 0) {
        share.addRows(writer.partition(), rows.rows);
        encoder.write(rows, compressor);
      }
    }
    encoder.finish();
    share.setFile(out);
  }

  @Override
  public void close() {
    compressor.close();
  }
}
