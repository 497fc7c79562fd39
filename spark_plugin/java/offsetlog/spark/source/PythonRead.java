package offsetlog.spark.source;

import java.io.Serializable;
import offsetlog.spark.line.SparkLine;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.execution.datasources.v2.python.PythonPartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingPartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.python.ArrowPythonRunner;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Map;

/**
 * The function with which Python reads in a task, as Spark made it; here its Arrow columns are taken
 * as they are, where Spark itself takes them apart into rows.
 *
 * @param schema of what the function gives
 */
record PythonRead(
    UserDefinedPythonDataSource source,
    byte[] function,
    StructType schema,
    Option<String> artifacts,
    Option<String> session)
    implements Serializable {

  /** Scala's names of the fields of Spark's own factory. */
  static PythonRead of(PythonPartitionReaderFactory it) {
    return new PythonRead(
        it.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$source,
        it.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$pickledReadFunc,
        it.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$outputSchema,
        it.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$jobArtifactUUID,
        SparkLine.session(it));
  }

  static PythonRead of(PythonStreamingPartitionReaderFactory it) {
    return new PythonRead(
        it.org$apache$spark$sql$execution$datasources$v2$python$PythonStreamingPartitionReaderFactory$$source,
        it.org$apache$spark$sql$execution$datasources$v2$python$PythonStreamingPartitionReaderFactory$$pickledReadFunc,
        it.org$apache$spark$sql$execution$datasources$v2$python$PythonStreamingPartitionReaderFactory$$outputSchema,
        it.org$apache$spark$sql$execution$datasources$v2$python$PythonStreamingPartitionReaderFactory$$jobArtifactUUID,
        SparkLine.session(it));
  }

  /** Batches with one column, a struct of those of the schema. To be called in the task's thread. */
  Iterator<ColumnarBatch> batches(byte[] pickled, Map<String, SQLMetric> metrics) {
    ArrowPythonRunner runner =
        SparkLine.runner(source, function, schema, metrics, artifacts, session);
    InternalRow row = row(row(pickled));
    TaskContext context = TaskContext.get();
    return runner.compute(one(one(row)), context.partitionId(), context);
  }

  private static InternalRow row(Object value) {
    return new GenericInternalRow(new Object[] {value});
  }

  private static <T> Iterator<T> one(T value) {
    return scala.package$.MODULE$.Iterator().single(value);
  }
}
