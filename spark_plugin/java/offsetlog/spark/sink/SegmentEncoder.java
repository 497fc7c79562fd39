package offsetlog.spark.sink;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import offsetlog.segment.Xxh3;
import org.apache.parquet.format.ColumnChunk;
import org.apache.parquet.format.ColumnMetaData;
import org.apache.parquet.format.ConvertedType;
import org.apache.parquet.format.Encoding;
import org.apache.parquet.format.FieldRepetitionType;
import org.apache.parquet.format.FileMetaData;
import org.apache.parquet.format.KeyValue;
import org.apache.parquet.format.ListType;
import org.apache.parquet.format.LogicalType;
import org.apache.parquet.format.MilliSeconds;
import org.apache.parquet.format.RowGroup;
import org.apache.parquet.format.SchemaElement;
import org.apache.parquet.format.Statistics;
import org.apache.parquet.format.StringType;
import org.apache.parquet.format.TimeUnit;
import org.apache.parquet.format.TimestampType;
import org.apache.parquet.format.Type;
import org.apache.parquet.format.Util;

/**
 * A segment's bytes, as SPEC.md has them: row groups with a sum each, and a foot that says where
 * they lie. The columns {@code key} and {@code headers} are left out where the first row group has
 * none of them; a later one that has is for another segment.
 */
final class SegmentEncoder {
  private static final byte[] MAGIC = "PAR1".getBytes(StandardCharsets.US_ASCII);
  private static final int FORMAT_VERSION = 1;
  private static final List<Encoding> ENCODINGS = List.of(Encoding.RLE, Encoding.PLAIN);

  /** Where the bytes go. */
  interface Output {
    void write(byte[] data, int from, int length) throws IOException;
  }

  /** What an entry says of a segment's bytes. */
  record Foot(long size, int footerBytes, String sum) {}

  private final Output output;
  private final Bytes memory;
  private final List<RowGroup> groups = new ArrayList<>();
  private final StringBuilder sums = new StringBuilder("[");
  private final boolean hasKey;
  private final boolean hasHeaders;
  private long position;
  private long records;

  /** {@code memory} is used for one row group at a time, and may be shared. */
  SegmentEncoder(Output output, Bytes memory, boolean hasKey, boolean hasHeaders) {
    this.output = output;
    this.memory = memory;
    this.hasKey = hasKey;
    this.hasHeaders = hasHeaders;
  }

  /** Whether the rows have no value in a column that this segment leaves out. */
  boolean fits(RowBatch rows) {
    return (hasKey || !rows.hasKeys()) && (hasHeaders || !rows.hasHeaders());
  }

  /** How many row groups it has. */
  int groups() {
    return groups.size();
  }

  /** Writes a row group that fits. */
  void write(RowBatch rows, Compressor compressor) throws IOException {
    rows.end(compressor);
    if (groups.isEmpty()) {
      put(MAGIC, MAGIC.length);
    }
    memory.clear();
    long start = position;
    List<ColumnChunk> chunks = new ArrayList<>();
    if (hasKey) {
      chunks.add(chunk(rows.key, Type.BYTE_ARRAY, "key"));
    }
    chunks.add(chunk(rows.value, Type.BYTE_ARRAY, "value"));
    if (hasHeaders) {
      chunks.add(chunk(rows.headerKey, Type.BYTE_ARRAY, "headers", "list", "element", "key"));
      chunks.add(chunk(rows.headerValue, Type.BYTE_ARRAY, "headers", "list", "element", "value"));
    }
    ColumnChunk times = chunk(rows.timestamp, Type.INT64, "timestamp");
    times.meta_data.setStatistics(statistics(rows));
    chunks.add(times);
    String sum = Xxh3.hex(Xxh3.hash(memory.data, 0, memory.size));
    put(memory.data, memory.size);
    addGroup(rows, chunks, start);
    sums.append(records == 0 ? "" : ",").append('[').append(start).append(',').append(position);
    sums.append(",\"").append(sum).append("\",").append(rows.rows).append(']');
    records += rows.rows;
  }

  private void addGroup(RowBatch rows, List<ColumnChunk> chunks, long start) {
    long unpacked = 0;
    for (ColumnChunk chunk : chunks) {
      unpacked += chunk.meta_data.total_uncompressed_size;
    }
    RowGroup group = new RowGroup(chunks, unpacked, rows.rows);
    group.setFile_offset(start);
    group.setTotal_compressed_size(position - start);
    groups.add(group);
  }

  private ColumnChunk chunk(ColumnPages column, Type type, String... path) {
    long start = position + memory.size;
    memory.write(column.pages.data, 0, column.pages.size);
    ColumnMetaData about =
        new ColumnMetaData(
            type,
            ENCODINGS,
            List.of(path),
            column.codec,
            column.values,
            column.unpackedBytes,
            column.pages.size,
            start);
    return new ColumnChunk(0).setMeta_data(about);
  }

  private static Statistics statistics(RowBatch rows) {
    return new Statistics()
        .setNull_count(0)
        .setMin_value(eightBytes(rows.leastTime))
        .setMax_value(eightBytes(rows.greatestTime));
  }

  private static ByteBuffer eightBytes(long number) {
    ByteBuffer bytes = ByteBuffer.allocate(Long.BYTES).order(ByteOrder.LITTLE_ENDIAN);
    return bytes.putLong(0, number);
  }

  /** Writes the foot. */
  Foot finish() throws IOException {
    FileMetaData about = new FileMetaData(2, schema(), records, groups);
    about.setCreated_by("offsetlog");
    KeyValue version = new KeyValue("offsetlog.version");
    KeyValue ranges = new KeyValue("offsetlog.groups");
    about.setKey_value_metadata(
        List.of(
            version.setValue(Integer.toString(FORMAT_VERSION)),
            ranges.setValue(sums.append(']').toString())));
    memory.clear();
    Util.writeFileMetaData(about, memory);
    memory.putInt(memory.size);
    memory.write(MAGIC, 0, MAGIC.length);
    String sum = Xxh3.hex(Xxh3.hash(memory.data, 0, memory.size));
    put(memory.data, memory.size);
    return new Foot(position, memory.size, sum);
  }

  private void put(byte[] data, int length) throws IOException {
    output.write(data, 0, length);
    position += length;
  }

  private List<SchemaElement> schema() {
    List<SchemaElement> schema = new ArrayList<>();
    int columns = 2 + (hasKey ? 1 : 0) + (hasHeaders ? 1 : 0);
    SchemaElement root = new SchemaElement("schema").setNum_children(columns);
    schema.add(root.setRepetition_type(FieldRepetitionType.REQUIRED));
    if (hasKey) {
      schema.add(optional("key", Type.BYTE_ARRAY));
    }
    schema.add(optional("value", Type.BYTE_ARRAY));
    if (hasHeaders) {
      SchemaElement list = optional("headers", null).setNum_children(1);
      list.setConverted_type(ConvertedType.LIST).setLogicalType(LogicalType.LIST(new ListType()));
      schema.add(list);
      SchemaElement repeated = new SchemaElement("list").setNum_children(1);
      schema.add(repeated.setRepetition_type(FieldRepetitionType.REPEATED));
      schema.add(optional("element", null).setNum_children(2));
      SchemaElement name = optional("key", Type.BYTE_ARRAY).setConverted_type(ConvertedType.UTF8);
      schema.add(name.setLogicalType(LogicalType.STRING(new StringType())));
      schema.add(optional("value", Type.BYTE_ARRAY));
    }
    SchemaElement time = optional("timestamp", Type.INT64);
    TimeUnit millis = TimeUnit.MILLIS(new MilliSeconds());
    time.setLogicalType(LogicalType.TIMESTAMP(new TimestampType(true, millis)));
    schema.add(time.setConverted_type(ConvertedType.TIMESTAMP_MILLIS));
    return schema;
  }

  private static SchemaElement optional(String name, Type type) {
    SchemaElement element = new SchemaElement(name);
    element.setRepetition_type(FieldRepetitionType.OPTIONAL);
    return type == null ? element : element.setType(type);
  }
}
