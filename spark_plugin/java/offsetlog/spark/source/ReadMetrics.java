package offsetlog.spark.source;

import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomSumMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/** What Spark's UI shows of a scan: who read the rows, and how many bytes were checked. */
public final class ReadMetrics {
  static final CustomMetric[] ALL = {new RowsOfJvm(), new RowsOfPython(), new BytesChecked()};

  long rowsOfJvm;
  long rowsOfPython;
  long bytesChecked;

  CustomTaskMetric[] values() {
    return new CustomTaskMetric[] {
      value(RowsOfJvm.NAME, rowsOfJvm),
      value(RowsOfPython.NAME, rowsOfPython),
      value(BytesChecked.NAME, bytesChecked)
    };
  }

  static CustomTaskMetric value(String name, long value) {
    return new CustomTaskMetric() {
      @Override
      public String name() {
        return name;
      }

      @Override
      public long value() {
        return value;
      }
    };
  }

  /** Spark makes these anew by their names. */
  public static final class RowsOfJvm extends CustomSumMetric {
    static final String NAME = "rowsOfJvm";

    @Override
    public String name() {
      return NAME;
    }

    @Override
    public String description() {
      return "rows read by the JVM";
    }
  }

  public static final class RowsOfPython extends CustomSumMetric {
    static final String NAME = "rowsOfPython";

    @Override
    public String name() {
      return NAME;
    }

    @Override
    public String description() {
      return "rows read by Python";
    }
  }

  public static final class BytesChecked extends CustomSumMetric {
    static final String NAME = "bytesChecked";

    @Override
    public String name() {
      return NAME;
    }

    @Override
    public String description() {
      return "bytes whose checksum was compared";
    }
  }
}
