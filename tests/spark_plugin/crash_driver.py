"""A driver that is killed: it streams a topic out, each attempt at a batch into a folder of its
own, until it is told to stop at the end of what is there."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import Any


def main(root: str, out: str, checkpoint: str, ends: str) -> None:
    import offsetlog.spark

    spark = offsetlog.spark.session(
        "crash", master="local[2]", delta=False, config={"spark.ui.enabled": "false"}
    )
    spark.sparkContext.setLogLevel("OFF")

    def take(frame: Any, batch: int) -> None:
        frame.coalesce(1).write.parquet(f"{out}/{batch:05d}-{uuid.uuid4().hex}")

    stream = (
        spark.readStream.format("offsetlog")
        .option("subscribe", "orders")
        .option("startingOffsets", "latest")
        .option("group.id", "g")
        .option("maxOffsetsPerTrigger", "40" if ends == "no" else "1000000")
        .load(root)
        .select("partition", "offset", "value")
    )
    writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
    if ends == "yes":
        writer = writer.trigger(availableNow=True)
    query = writer.start()
    Path(checkpoint, "..", "ready").touch()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
