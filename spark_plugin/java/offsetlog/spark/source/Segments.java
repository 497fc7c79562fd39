package offsetlog.spark.source;

import java.io.IOException;
import java.util.Arrays;
import java.util.stream.Collectors;
import offsetlog.segment.SegmentReader;
import offsetlog.segment.Unreadable;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.UTF8String;

/** The segments of a task, as batches of Spark's columns. */
final class Segments implements AutoCloseable {
  private final SegmentFiles files;
  private final StructType columns;
  private final ReadMetrics metrics;
  private final SegmentReader reader;
  private ColumnarBatch batch;
  private boolean hasRead;
  private long checkedBefore;

  Segments(SegmentFiles files, StructType columns, ReadMetrics metrics) {
    this.files = files;
    this.columns = columns;
    this.metrics = metrics;
    reader =
        new SegmentReader(
            Arrays.stream(columns.fieldNames())
                .map(OffsetLogTable::column)
                .collect(Collectors.toSet()));
  }

  /** Whether it makes sense to open one. */
  boolean areUsable() {
    return files.isUsable();
  }

  boolean hasRead() {
    return hasRead;
  }

  boolean isRoot() {
    return files.isRoot();
  }

  long reached() {
    return reader.reached();
  }

  void open(Steps.Step step) throws IOException, Unreadable {
    if (!hasRead && !isRoot()) {
      throw new Unreadable("the root is another than the driver's");
    }
    hasRead = true;
    SegmentReader.Ref ref = step.piece().segment();
    checkedBefore = reader.bytesChecked();
    try {
      reader.open(files.open(step), ref, step.start(), step.end());
    } catch (IOException | Unreadable why) {
      failed(why);
      throw why;
    }
    batch = new ColumnarBatch(vectors(step));
  }

  /** The next rows of the segment; null when all are given. */
  ColumnarBatch next() throws IOException, Unreadable {
    int rows;
    try {
      rows = reader.step();
    } catch (IOException | Unreadable why) {
      failed(why);
      throw why;
    }
    files.succeeded();
    batch.setNumRows(rows);
    count(reader.bytesChecked() - metrics.bytesChecked);
    return rows == 0 ? null : batch;
  }

  /** What has the planned foot and is unreadable all the same is no failure of who fetched it. */
  private void failed(Exception why) {
    if (why instanceof IOException || reader.bytesChecked() == checkedBefore) {
      files.failed(why);
    }
  }

  /** Spark's own metric of bytes read is what Hadoop's filesystems count in this thread. */
  @SuppressWarnings("deprecation")
  private void count(long bytes) {
    if (bytes > 0) {
      metrics.bytesChecked += bytes;
      FileSystem.getStatistics("file", RawLocalFileSystem.class).incrementBytesRead(bytes);
    }
  }

  private ColumnVector[] vectors(Steps.Step step) {
    ColumnVector[] out = new ColumnVector[columns.length()];
    for (int i = 0; i < out.length; i++) {
      out[i] = vector(columns.fields()[i], step);
    }
    return out;
  }

  private ColumnVector vector(StructField field, Steps.Step step) {
    DataType type = field.dataType();
    return switch (OffsetLogTable.column(field.name())) {
      case "key" -> reader.hasKeys ? new BytesVector(reader.keys) : nulls(type);
      case "value" -> reader.hasValues ? new BytesVector(reader.values) : nulls(type);
      case "headers" ->
          reader.hasHeaders ? new HeadersVector(type, reader.headers) : nulls(type);
      case "timestamp" -> new LongVector(type, reader.times);
      case "offset" ->
          reader.hasOffsets ? new LongVector(type, reader.offsets) : new OffsetVector(reader);
      case "topic" -> {
        ConstantColumnVector topic = new ConstantColumnVector(1, type);
        topic.setUtf8String(UTF8String.fromString(step.range().topic()));
        yield topic;
      }
      case "partition" -> constant(type, step.range().partition());
      case "timestampType" -> constant(type, step.piece().timeType());
      default -> throw new IllegalArgumentException("a log has no column " + field.name());
    };
  }

  private static ColumnVector constant(DataType type, int value) {
    ConstantColumnVector out = new ConstantColumnVector(1, type);
    out.setInt(value);
    return out;
  }

  private static ColumnVector nulls(DataType type) {
    ConstantColumnVector out = new ConstantColumnVector(1, type);
    out.setNull();
    return out;
  }

  @Override
  public void close() throws IOException {
    reader.close();
    files.close();
  }
}
