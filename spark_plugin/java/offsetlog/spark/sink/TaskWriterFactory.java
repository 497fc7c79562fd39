package offsetlog.spark.sink;

import com.fasterxml.jackson.core.JsonProcessingException;
import offsetlog.spark.format.MarkedJson;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonBatchWriterFactory;

/** Makes the writer of a task: ours if Python planned one, with Python's for what it can't do. */
final class TaskWriterFactory {
  private static final String MARK = "offsetlog-write!";

  private TaskWriterFactory() {}

  static DataWriterFactory of(DataWriterFactory python) {
    String plan = plan(python);
    return plan == null ? python : new ForBatch(plan, python);
  }

  static StreamingDataWriterFactory of(StreamingDataWriterFactory python) {
    String plan = plan(python);
    return plan == null ? python : new ForStream(plan, python);
  }

  /** The plan that Python has put into the function that its tasks would run. */
  private static String plan(Object python) {
    if (python instanceof PythonBatchWriterFactory factory) {
      return MarkedJson.in(factory.pickledWriteFunc(), MARK);
    }
    return null;
  }

  private static DataWriter<InternalRow> writer(
      String plan, int task, DataWriter<InternalRow> python) {
    try {
      return new TaskWriter(WritePlan.of(plan), task, python);
    } catch (JsonProcessingException broken) {
      throw new IllegalArgumentException("The plan of a write is not as it was sent.", broken);
    }
  }

  private record ForBatch(String plan, DataWriterFactory python) implements DataWriterFactory {
    @Override
    public DataWriter<InternalRow> createWriter(int task, long attempt) {
      return writer(plan, task, python.createWriter(task, attempt));
    }
  }

  private record ForStream(String plan, StreamingDataWriterFactory python)
      implements StreamingDataWriterFactory {
    @Override
    public DataWriter<InternalRow> createWriter(int task, long attempt, long batch) {
      return writer(plan, task, python.createWriter(task, attempt, batch));
    }
  }
}
