package offsetlog.spark.source;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import offsetlog.segment.LocalFile;
import offsetlog.segment.RandomAccess;
import offsetlog.segment.Unreadable;

/**
 * Those of a root on this machine's disks.
 *
 * <p>Invariant: no link below the root is followed.
 */
final class LocalFiles implements SegmentFiles {
  private static final String ROOT_FILE = "_offsetlog.json";
  private static final int MAX_ROOT_FILE = 1 << 16;
  private static final ObjectMapper JSON = new ObjectMapper();

  private final Path root;
  private final String rootId;
  private final Map<Path, Boolean> folders = new HashMap<>();

  LocalFiles(ReadPlan plan) {
    root = Path.of(plan.root());
    rootId = plan.rootId();
  }

  @Override
  public boolean isRoot() {
    Path file = root.resolve(ROOT_FILE);
    // Before it is opened: somebody else would have to write into a pipe.
    if (!Files.isRegularFile(file, LinkOption.NOFOLLOW_LINKS)) {
      return false;
    }
    try (InputStream in = Files.newInputStream(file, LinkOption.NOFOLLOW_LINKS)) {
      byte[] data = in.readNBytes(MAX_ROOT_FILE + 1);
      JsonNode said = data.length > MAX_ROOT_FILE ? JSON.nullNode() : JSON.readTree(data);
      JsonNode format = said.path("format");
      return format.isInt() && format.asInt() == 1 && rootId.equals(said.path("id").textValue());
    } catch (IOException error) {
      return false;
    }
  }

  @Override
  public boolean isUsable() {
    return true;
  }

  @Override
  public RandomAccess open(Steps.Step step) throws IOException, Unreadable {
    String name = step.piece().segment().name();
    Path path = root.resolve(name);
    if (!folders.computeIfAbsent(path.getParent(), this::isPlain)) {
      throw new Unreadable(name + " lies behind a link");
    }
    return new LocalFile(path);
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

  @Override
  public void succeeded() {}

  @Override
  public void failed(Exception why) {}

  @Override
  public void close() {}
}
