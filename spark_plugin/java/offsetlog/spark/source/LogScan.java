package offsetlog.spark.source;

import java.util.Arrays;
import java.util.stream.Stream;
import offsetlog.spark.line.SparkLine;
import offsetlog.spark.planner.WarmPlanner;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.execution.datasources.v2.python.PythonBatch;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.PythonPartitionReaderFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * One query over a log: planned by Spark's own batch or stream of a Python source, which is wrapped.
 *
 * <p>Invariant: what is planned does not depend on the query's columns, so all queries of one frame
 * share a plan, as without the JVM's reader.
 */
final class LogScan implements Scan {
  private final OffsetLogSource source;
  private final StructType schema;
  private final StructType columns;
  private final CaseInsensitiveStringMap options;
  private final Narrowed narrowed;
  private final StoreAccess access = new StoreAccess();

  LogScan(
      OffsetLogSource source,
      StructType schema,
      StructType columns,
      CaseInsensitiveStringMap options,
      Narrowed narrowed) {
    this.source = source;
    this.schema = schema;
    this.columns = columns;
    this.options = options;
    this.narrowed = narrowed;
  }

  @Override
  public StructType readSchema() {
    return columns;
  }

  @Override
  public String description() {
    return OffsetLogSource.NAME;
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    return Stream.of(source.source().createPythonMetrics(), ReadMetrics.ALL)
        .flatMap(Arrays::stream)
        .toArray(CustomMetric[]::new);
  }

  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return ColumnarSupportMode.PARTITION_DEFINED;
  }

  @Override
  public Batch toBatch() {
    return new LogBatch(new PythonBatch(source, OffsetLogSource.NAME, schema, options));
  }

  /** A stream is planned before it is known what is filtered. */
  @Override
  public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
    MicroBatchStream stream =
        WarmPlanner.stream(
            source,
            planned ->
                SparkLine.scan(planned, OffsetLogSource.NAME, schema, options)
                    .toMicroBatchStream(checkpointLocation));
    return LogStream.of(stream, columns, narrowed, access);
  }

  /** A batch as Spark plans it in Python. */
  private final class LogBatch implements Batch {
    private final Batch planned;

    LogBatch(Batch planned) {
      this.planned = planned;
    }

    @Override
    public InputPartition[] planInputPartitions() {
      return access.decide(
          Arrays.stream(planned.planInputPartitions())
              .map(PythonInputPartition.class::cast)
              .map(each -> LogPartition.of(each.index(), each.pickedPartition()))
              .filter(each -> each.hasAny(narrowed))
              .toArray(InputPartition[]::new));
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
      PythonPartitionReaderFactory rows =
          (PythonPartitionReaderFactory) planned.createReaderFactory();
      return new LogReaderFactory(
          PythonRead.of(rows), rows, columns, narrowed, access.reads(), access.settings());
    }
  }
}
