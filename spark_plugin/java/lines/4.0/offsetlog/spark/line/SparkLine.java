package offsetlog.spark.line;

import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonPartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingPartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.python.ArrowPythonRunner;
import org.apache.spark.sql.execution.python.MapInBatchEvaluatorFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.collection.immutable.Map;

/** What the lines of Spark have each in their own way; this is how Spark 4.0 has it. */
public final class SparkLine {
  private SparkLine() {}

  /** Spark's own scan of a Python source. */
  public static Scan scan(
      PythonDataSourceV2 source,
      String name,
      StructType schema,
      CaseInsensitiveStringMap options) {
    return new PythonScan(source, name, schema, options);
  }

  /** The session for which a factory was made, of which this line does not tell workers. */
  public static Option<String> session(PythonPartitionReaderFactory it) {
    return Option.empty();
  }

  public static Option<String> session(PythonStreamingPartitionReaderFactory it) {
    return Option.empty();
  }

  /** What runs a source's function in a Python worker, as Spark's own task would. */
  public static ArrowPythonRunner runner(
      UserDefinedPythonDataSource source,
      byte[] function,
      StructType schema,
      Map<String, SQLMetric> metrics,
      Option<String> artifacts,
      Option<String> session) {
    MapInBatchEvaluatorFactory it =
        source.createMapInBatchEvaluatorFactory(
            function,
            "read_from_data_source",
            UserDefinedPythonDataSource.readInputSchema(),
            schema,
            metrics,
            artifacts);
    return new ArrowPythonRunner(
        it.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$chainedFunc,
        it.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$pythonEvalType,
        new int[][] {{0}},
        // Not what its name says, but the type of what the function takes.
        new StructType()
            .add(
                "struct",
                it.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$outputTypes),
        it.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$sessionLocalTimeZone,
        it.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$largeVarTypes,
        it.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$pythonRunnerConf,
        metrics,
        artifacts,
        // Its profiler: Spark gives a source's function none.
        Option.empty());
  }
}
