import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.Set;
import offsetlog.segment.BytesColumn;
import offsetlog.segment.HeadersColumn;
import offsetlog.segment.LocalFile;
import offsetlog.segment.SegmentReader;
import offsetlog.segment.Unreadable;
import offsetlog.segment.Xxh3;

/**
 * The decoder without Spark. A line asks for the rows of a segment, and is answered by a line for
 * each row and one that says how it ended; "sum" asks for the sum of bytes. "time" reads a segment
 * many times and says how long that takes: the floor of what a source can do.
 */
final class Decode {
  private static final HexFormat HEX = HexFormat.of();

  public static void main(String[] arguments) throws IOException {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    PrintStream out = new PrintStream(System.out, false);
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] words = line.split(" ");
      try {
        switch (words[0]) {
          case "sum" -> {
            byte[] data = words.length > 1 ? HEX.parseHex(words[1]) : new byte[0];
            out.println(Long.toHexString(Xxh3.hash(data, 0, data.length)));
          }
          case "time" -> out.println(time(words));
          default -> out.println(rows(words, out));
        }
      } catch (RuntimeException | Error error) {
        out.println("crash " + error);
      }
      out.flush();
    }
  }

  /** rows path columns start end base end records size foot sum. */
  private static SegmentReader.Ref ref(String[] w) {
    return new SegmentReader.Ref(
        "it", Long.parseLong(w[5]), Long.parseLong(w[6]), Long.parseLong(w[7]),
        Long.parseLong(w[8]), Integer.parseInt(w[9]), w[10]);
  }

  private static String rows(String[] w, PrintStream out) {
    Set<String> columns = Set.of(w[2].split(","));
    SegmentReader reader = new SegmentReader(columns);
    try (reader) {
      reader.open(
          new LocalFile(Path.of(w[1])), ref(w), Long.parseLong(w[3]), Long.parseLong(w[4]));
      for (int rows = reader.step(); rows > 0; rows = reader.step()) {
        for (int i = 0; i < rows; i++) {
          StringBuilder row = new StringBuilder("row ");
          row.append(
              reader.hasOffsets
                  ? reader.offsets.values[reader.offsets.row + i]
                  : reader.firstOffset + i);
          if (columns.contains("key")) {
            row.append(" k=").append(bytes(reader.hasKeys, reader.keys, i));
          }
          if (columns.contains("value")) {
            row.append(" v=").append(bytes(reader.hasValues, reader.values, i));
          }
          if (columns.contains("timestamp")) {
            row.append(" t=").append(reader.times.values[reader.times.row + i]);
          }
          if (columns.contains("headers")) {
            row.append(" h=").append(headers(reader, i));
          }
          out.println(row);
        }
      }
      return "end " + reader.reached();
    } catch (IOException | Unreadable why) {
      return "unreadable " + reader.reached() + " " + why.getMessage();
    }
  }

  private static String bytes(boolean isThere, BytesColumn column, int row) {
    return isThere ? bytes(column.bytes, column.starts[column.row + row]) : "-";
  }

  private static String bytes(byte[] data, int start) {
    return start == BytesColumn.NULL
        ? "-"
        : "'" + HEX.formatHex(data, start, start + BytesColumn.length(data, start));
  }

  private static String headers(SegmentReader reader, int row) {
    HeadersColumn headers = reader.headers;
    int at = headers.row + row;
    if (!reader.hasHeaders || headers.isNull[at]) {
      return "-";
    }
    StringBuilder out = new StringBuilder("[");
    for (int i = headers.firsts[at]; i < headers.firsts[at + 1]; i++) {
      out.append(bytes(headers.names.bytes, headers.names.starts[i]));
      out.append(":").append(bytes(headers.values.bytes, headers.values.starts[i])).append(",");
    }
    return out.append("]").toString();
  }

  /** time path columns start end base end records size foot sum rounds: the best, in nanoseconds. */
  private static String time(String[] w) {
    SegmentReader reader = new SegmentReader(Set.of(w[2].split(",")));
    long best = Long.MAX_VALUE;
    try (reader) {
      for (int round = Integer.parseInt(w[11]); round > 0; round--) {
        long began = System.nanoTime();
        reader.open(
            new LocalFile(Path.of(w[1])), ref(w), Long.parseLong(w[3]),
            Long.parseLong(w[4]));
        while (reader.step() > 0) {}
        best = Math.min(best, System.nanoTime() - began);
      }
      return Long.toString(best);
    } catch (IOException | Unreadable why) {
      return "unreadable " + why.getMessage();
    }
  }
}
