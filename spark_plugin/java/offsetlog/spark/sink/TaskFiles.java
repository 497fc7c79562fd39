package offsetlog.spark.sink;

import java.io.IOException;
import java.net.InetAddress;
import java.nio.file.FileSystemException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * The segments that a task writes: opened below the root that was planned with, and given their
 * names by threads of their own, so that the disk's syncs wait for each other and not for the rows.
 */
final class TaskFiles implements AutoCloseable {
  private static final String GONE = "the root that was planned with is gone";

  private static final int THREADS = 4;

  /** Segments of a task that are open at once. */
  static final int MOST_OPEN = 64;

  private final WritePlan plan;
  private final Root root;
  private final Set<Topic> topics = new HashSet<>();
  private final Set<String> partitions = new HashSet<>();
  private final List<SegmentFile> all = new ArrayList<>();
  private final List<Future<?>> onTheirWay = new ArrayList<>();
  private ExecutorService threads;
  private int open;

  TaskFiles(WritePlan plan) {
    this.plan = plan;
    root = new Root(plan);
  }

  /** Whether it is there, and this system writes into it safely. */
  boolean isRootThere() throws IOException {
    return root.isThere() && root.hasOpenFolders();
  }

  boolean isEmpty() {
    return all.isEmpty();
  }

  boolean isFull() {
    return open >= MOST_OPEN;
  }

  /** A new segment of a partition. */
  SegmentFile open(Topic topic, int partition) throws IOException {
    boolean isNew = partitions.add(topic.folder() + "/" + partition);
    if (isNew && !root.isThere()) {
      throw new FileSystemException(null, null, GONE);
    }
    topics.add(topic);
    SegmentFile file = new SegmentFile(root, topic, partition);
    all.add(file);
    open++;
    return file;
  }

  /** Makes a segment durable under its name, soon. */
  void name(SegmentFile file) {
    open--;
    if (threads == null) {
      threads = Executors.newFixedThreadPool(THREADS, TaskFiles::thread);
    }
    onTheirWay.add(
        threads.submit(
            () -> {
              file.name();
              return null;
            }));
  }

  private static Thread thread(Runnable work) {
    Thread thread = new Thread(work, "offsetlog-put");
    thread.setDaemon(true);
    return thread;
  }

  /** Waits until all of them are durable, with the folders that they lie in. */
  void settle() throws IOException {
    for (Future<?> each : onTheirWay) {
      try {
        each.get();
      } catch (ExecutionException failed) {
        if (failed.getCause() instanceof IOException error) {
          throw error;
        }
        throw new IllegalStateException(failed.getCause());
      } catch (InterruptedException stopped) {
        Thread.currentThread().interrupt();
        throw new IOException("the task was stopped", stopped);
      }
    }
    onTheirWay.clear();
    for (Topic topic : topics) {
      try (Folder folder = root.topic(topic, false)) {
        folder.sync();
      }
    }
    if (!topics.isEmpty()) {
      root.sync();
    }
  }

  /** Removes what has no name. */
  @Override
  public void close() throws IOException {
    if (threads != null) {
      threads.shutdownNow();
    }
    for (SegmentFile file : all) {
      file.close();
    }
  }

  /** What Python says of such a failure. */
  IOException inPythonsWords(IOException error) throws IOException {
    String where = plan.url();
    String reason = error.getMessage();
    if (error instanceof FileSystemException at) {
      reason = at.getReason();
      if (at.getFile() != null) {
        where = "'" + plan.root().relativize(Path.of(at.getFile())) + "' under " + where;
      }
    }
    if (GONE.equals(reason)) {
      return new IOException(
          "offsetlog.errors.StorageError: The log is not at "
              + where
              + ", as the machine "
              + InetAddress.getLocalHost().getHostName()
              + " sees it: another log, or none, is there. Nothing was written there. Mount its"
              + " disk on that machine, or put the log where all machines reach it under one"
              + " address.",
          error);
    }
    if (reason == null) {
      reason = error.toString();
    }
    if (Folder.IS_LINK.equals(reason)) {
      return new IOException(
          "offsetlog.errors.StorageError: "
              + where
              + " is a symbolic link, and none is followed under the root. Put the root itself"
              + " where the files are to lie, and remove the link.",
          error);
    }
    String words = plan.failures().getOrDefault(reason, reason + ".");
    return new IOException(
        "offsetlog.errors.StorageError: Could not write " + where + ": " + words, error);
  }
}
