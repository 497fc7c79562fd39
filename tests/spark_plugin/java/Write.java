package offsetlog.spark.sink;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;

/**
 * The segments of a task without Spark and without rows: "task ROOT" begins one, "open
 * PARTITION" a segment, "name" makes it durable under its name, "close" ends the task. Each line is answered by "done", or by what the task would say.
 */
final class Write {
  public static void main(String[] arguments) throws IOException {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    Topic topic = new Topic("t", "t", 2, 0, 1, 1 << 20, "none", 1 << 20, false, false);
    TaskFiles files = null;
    SegmentFile file = null;
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] words = line.split(" ");
      try {
        switch (words[0]) {
          case "task" -> files = new TaskFiles(plan(Path.of(words[1]), topic));
          case "open" -> {
            file = files.open(topic, Integer.parseInt(words[1]));
            file.write(new byte[1000], 0, 1000);
          }
          case "name" -> {
            files.name(file);
            files.settle();
          }
          default -> files.close();
        }
        System.out.println("done");
      } catch (IOException error) {
        System.out.println(files.inPythonsWords(error).getMessage());
      } catch (RuntimeException | Error error) {
        System.out.println("crash " + error);
      }
    }
  }

  private static WritePlan plan(Path root, Topic topic) throws IOException {
    String mark = Files.readString(root.resolve("_offsetlog.json"));
    return new WritePlan(
        root, "file://" + root, "id", mark, null, 0, false, 0, 0, 0, topic, Map.of(), Map.of());
  }
}
