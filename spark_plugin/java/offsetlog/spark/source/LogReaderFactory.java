package offsetlog.spark.source;

import offsetlog.spark.store.HadoopSettings;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Readers of columns; and of rows, by Spark's own, for a small batch that came with its plan.
 *
 * @param reads segments here; else Python reads all, and columns are taken from it
 * @param settings null: no client of Hadoop's is used
 */
record LogReaderFactory(
    PythonRead python,
    PartitionReaderFactory rows,
    StructType columns,
    Narrowed narrowed,
    boolean reads,
    HadoopSettings settings)
    implements PartitionReaderFactory {
  @Override
  public boolean supportColumnarReads(InputPartition partition) {
    return partition instanceof LogPartition;
  }

  @Override
  public PartitionReader<InternalRow> createReader(InputPartition partition) {
    return rows.createReader(partition);
  }

  @Override
  public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
    return new LogReader(python, columns, narrowed, reads, settings, (LogPartition) partition);
  }
}
