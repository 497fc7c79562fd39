package offsetlog.spark.source;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import offsetlog.segment.LocalFile;
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

/**
 * The segments of a task below one root on this machine's disks, as batches of Spark's columns.
 *
 * <p>Invariant: no link below the root is followed.
 */
final class Segments implements AutoCloseable {
  private static final String ROOT_FILE = "_offsetlog.json";
  private static final int MAX_ROOT_FILE = 1 << 16;
  private static final ObjectMapper JSON = new ObjectMapper();

  private final Path root;
  private final String rootId;
  private final StructType columns;
  private final ReadMetrics metrics;
  private final SegmentReader reader;
  private final Map<Path, Boolean> folders = new HashMap<>();
  private ColumnarBatch batch;
  private boolean hasRead;

  Segments(ReadPlan plan, StructType columns, ReadMetrics metrics) {
    root = Path.of(plan.root());
    rootId = plan.rootId();
    this.columns = columns;
    this.metrics = metrics;
    reader = new SegmentReader(Set.of(columns.fieldNames()));
  }

  boolean hasRead() {
    return hasRead;
  }

  long reached() {
    return reader.reached();
  }

  /** Whether the root in sight is the one that was planned with. */
  boolean isRoot() {
    try {
      Path file = root.resolve(ROOT_FILE);
      if (Files.isSymbolicLink(file) || Files.size(file) > MAX_ROOT_FILE) {
        return false;
      }
      JsonNode said = JSON.readTree(Files.readAllBytes(file));
      return said.path("format").asInt() == 1 && said.path("id").asText().equals(rootId);
    } catch (IOException error) {
      return false;
    }
  }

  void open(Steps.Step step) throws IOException, Unreadable {
    if (!hasRead && !isRoot()) {
      throw new Unreadable("the root is another than the driver's");
    }
    hasRead = true;
    SegmentReader.Ref ref = step.piece().segment();
    Path path = root.resolve(ref.name());
    if (!folders.computeIfAbsent(path.getParent(), this::isPlain)) {
      throw new Unreadable(ref.name() + " lies behind a link");
    }
    reader.open(new LocalFile(path), ref, step.start(), step.end());
    batch = new ColumnarBatch(vectors(step));
  }

  private boolean isPlain(Path folder) {
    try {
      Path real = root.toRealPath();
      return folder.toRealPath().equals(real.resolve(root.relativize(folder)))
          && Files.isDirectory(folder, LinkOption.NOFOLLOW_LINKS);
    } catch (IOException error) {
      return false;
    }
  }

  /** The next rows of the segment; null when all are given. */
  ColumnarBatch next() throws IOException, Unreadable {
    int rows = reader.step();
    batch.setNumRows(rows);
    count(reader.bytesChecked() - metrics.bytesChecked);
    return rows == 0 ? null : batch;
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
    return switch (field.name()) {
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
  }
}
