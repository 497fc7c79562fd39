package offsetlog.spark.source;

import java.io.Serializable;
import java.sql.Timestamp;
import java.time.Duration;
import java.time.Instant;
import java.util.HashSet;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.sources.EqualNullSafe;
import org.apache.spark.sql.sources.EqualTo;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.GreaterThan;
import org.apache.spark.sql.sources.GreaterThanOrEqual;
import org.apache.spark.sql.sources.In;
import org.apache.spark.sql.sources.LessThan;
import org.apache.spark.sql.sources.LessThanOrEqual;

/**
 * What the filters of a query say of topics, partitions, offsets and times.
 *
 * <p>Invariants: a record that passes all filters is in what is left; more may be. A filter that is
 * not understood narrows nothing.
 *
 * @param topics null: all of them; the same for partitions
 * @param low offsets in {@code [low, high)}
 * @param since milliseconds: no record before is wanted, and none after {@code until}
 */
record Narrowed(
    HashSet<String> topics,
    HashSet<Integer> partitions,
    long low,
    long high,
    long since,
    long until)
    implements Serializable {
  static final Narrowed NOT =
      new Narrowed(null, null, 0, Long.MAX_VALUE, Long.MIN_VALUE, Long.MAX_VALUE);

  /** Before this, in milliseconds, calendars and zones of {@code java.sql} are not Spark's. */
  private static final long REBASED = Instant.parse("1901-01-01T00:00:00Z").toEpochMilli();

  /** More than a zone has ever been put forward or back. */
  private static final long SLACK = Duration.ofDays(2).toMillis();

  static Narrowed by(Filter[] filters) {
    Narrowed out = NOT;
    for (Filter filter : filters) {
      out = out.with(filter);
    }
    return out;
  }

  boolean hasPartition(String topic, int partition) {
    return (topics == null || topics.contains(topic))
        && (partitions == null || partitions.contains(partition));
  }

  /** Whether records of these times may be wanted. */
  boolean hasTimes(long least, long greatest) {
    return greatest >= since && least <= until;
  }

  private Narrowed with(Filter filter) {
    if (filter instanceof EqualTo equal) {
      return with(equal.attribute(), new Object[] {equal.value()});
    }
    if (filter instanceof EqualNullSafe equal) {
      return with(equal.attribute(), new Object[] {equal.value()});
    }
    if (filter instanceof In in) {
      return with(in.attribute(), in.values());
    }
    if (filter instanceof GreaterThan than) {
      return bounded(than.attribute(), than.value(), 1, true);
    }
    if (filter instanceof GreaterThanOrEqual than) {
      return bounded(than.attribute(), than.value(), 0, true);
    }
    if (filter instanceof LessThan than) {
      return bounded(than.attribute(), than.value(), 0, false);
    }
    if (filter instanceof LessThanOrEqual than) {
      return bounded(than.attribute(), than.value(), 1, false);
    }
    return this;
  }

  /** The only values that a column may have. */
  private Narrowed with(String column, Object[] values) {
    return switch (column) {
      case "topic" ->
          new Narrowed(both(topics, values, String.class), partitions, low, high, since, until);
      case "partition" ->
          new Narrowed(topics, both(partitions, values, Integer.class), low, high, since, until);
      case "offset", "timestamp" -> between(column, values);
      default -> this;
    };
  }

  private Narrowed between(String column, Object[] values) {
    long least = Long.MAX_VALUE;
    long greatest = Long.MIN_VALUE;
    for (Object value : values) {
      Long number = column.equals("offset") ? offset(value) : millis(value);
      if (value != null && number == null) {
        return this;
      }
      if (number != null) {
        least = Math.min(least, number - slack(value, number));
        greatest = Math.max(greatest, number + slack(value, number));
      }
    }
    if (column.equals("timestamp")) {
      return since(least).until(greatest);
    }
    boolean isEnd = greatest == Long.MAX_VALUE || greatest == Long.MIN_VALUE;
    return from(least).to(isEnd ? greatest : greatest + 1);
  }

  /** Offsets from or up to a value, moved by {@code more}; or times, which are not exact. */
  private Narrowed bounded(String column, Object value, int more, boolean isLow) {
    if (column.equals("offset") && offset(value) != null) {
      long bound = offset(value);
      bound = bound == Long.MAX_VALUE ? bound : bound + more;
      return isLow ? from(bound) : to(bound);
    }
    Long millis = column.equals("timestamp") ? millis(value) : null;
    if (millis != null) {
      long slack = slack(value, millis);
      return isLow ? since(millis - slack) : until(millis + slack);
    }
    return this;
  }

  private Narrowed from(long low) {
    return new Narrowed(topics, partitions, Math.max(this.low, low), high, since, until);
  }

  private Narrowed to(long high) {
    return new Narrowed(topics, partitions, low, Math.min(this.high, high), since, until);
  }

  private Narrowed since(long since) {
    return new Narrowed(topics, partitions, low, high, Math.max(this.since, since), until);
  }

  private Narrowed until(long until) {
    return new Narrowed(topics, partitions, low, high, since, Math.min(this.until, until));
  }

  /** Those of both; what is of another type, as Spark compares it, narrows nothing. */
  private static <T> HashSet<T> both(HashSet<T> before, Object[] values, Class<T> type) {
    HashSet<T> out = new HashSet<>();
    for (Object value : values) {
      if (type.isInstance(value)) {
        out.add(type.cast(value));
      } else if (value != null) {
        return before;
      }
    }
    if (before != null) {
      out.retainAll(before);
    }
    return out;
  }

  private static Long offset(Object value) {
    return value instanceof Long || value instanceof Integer ? ((Number) value).longValue() : null;
  }

  /**
   * Rounded down: a record of that very millisecond may be wanted. Null where it is no time.
   *
   * <p>A {@code java.sql.Timestamp} is in the calendar and the zone of this JVM, which Spark moved it
   * to; only Spark's own way back gives the instant that was meant.
   */
  private static Long millis(Object value) {
    try {
      if (value instanceof Timestamp time) {
        return Math.floorDiv(DateTimeUtils.fromJavaTimestamp(time), 1000L);
      }
      return value instanceof Instant instant ? instant.toEpochMilli() : null;
    } catch (ArithmeticException error) {
      return null;
    }
  }

  /**
   * How far an instant may be off. Where a zone was put back, two instants became one {@code
   * Timestamp}, and the way back gives either.
   */
  private static long slack(Object value, long millis) {
    return value instanceof Timestamp && millis < REBASED ? SLACK : 0;
  }
}
