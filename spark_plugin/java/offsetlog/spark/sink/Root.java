package offsetlog.spark.sink;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.Arrays;

/**
 * The root that was planned with, as this machine sees it. Nothing is made anywhere else: not
 * below a mount point whose disk is gone, nor in another root at the same path.
 */
final class Root {
  private static final String FILE = "_offsetlog.json";
  private static final long MOST_BYTES = 1 << 16;

  private final Path path;
  private final byte[] file;

  Root(WritePlan plan) {
    path = plan.root();
    file = plan.rootFile().getBytes(StandardCharsets.UTF_8);
  }

  /** Whether it is there. */
  boolean isThere() throws IOException {
    Path mark = path.resolve(FILE);
    try {
      return Files.isRegularFile(mark, LinkOption.NOFOLLOW_LINKS)
          && Files.size(mark) <= MOST_BYTES
          && Arrays.equals(Files.readAllBytes(mark), file);
    } catch (NoSuchFileException gone) {
      return false;
    }
  }

  /** Whether names can be resolved from its open folders, as nothing else is safe. */
  boolean hasOpenFolders() throws IOException {
    try (Folder folder = Folder.open(path)) {
      return folder != null;
    }
  }

  /** The folder of a topic; {@code make}: if there is none it is made. */
  Folder topic(Topic topic, boolean make) throws IOException {
    try (Folder root = Folder.open(path)) {
      return make ? root.made(topic.folder()) : root.below(topic.folder());
    }
  }

  /** That of a partition. */
  Folder partition(Topic topic, int partition, boolean make) throws IOException {
    String name = "partition=" + partition;
    try (Folder above = topic(topic, make)) {
      return make ? above.made(name) : above.below(name);
    }
  }

  /** Makes its own name durable, where we may. */
  void sync() throws IOException {
    sync(path);
    Path above = path.toAbsolutePath().getParent();
    if (above != null && Files.isReadable(above)) {
      sync(above);
    }
  }

  private static void sync(Path path) throws IOException {
    try (Folder folder = Folder.open(path)) {
      folder.sync();
    }
  }
}
