"""Run a Hive Metastore from the jars inside PySpark: `python hive_metastore_server.py PORT FOLDER WAREHOUSE BUCKETS`.

Its database is Derby in memory; its log goes below FOLDER. It knows no S3, but makes the folder of every table: paths
that begin with `s3:`, as WAREHOUSE does, lead it to the folders in BUCKETS, which an S3 server serves as buckets.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, JavaObject, launch_gateway
from support.services.servers import QUICK_JAVA, java, spark_jars

# Reflection that DataNucleus and Hadoop need of modern Java.
_OPENED = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("lang", "net", "util")]


def settings(warehouse: str, buckets: Path) -> dict[str, str]:
    """Return what the metastore must know."""
    return {
        "datanucleus.connectionPoolingType": "HikariCP",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": warehouse,
        "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
        "fs.s3.impl": "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme",
        "fs.viewfs.overload.scheme.target.s3.impl": "org.apache.hadoop.fs.LocalFileSystem",
        **{f"fs.viewfs.mounttable.{bucket.name}.linkFallback": f"file://{bucket}" for bucket in buckets.iterdir()},
    }


def start_java(folder: Path) -> Any:
    """Start Java with Hive's classes, and return what reaches them."""
    port = launch_gateway(
        classpath=os.pathsep.join(str(jar) for jar in spark_jars("*.jar")),
        javaopts=[*QUICK_JAVA, *_OPENED, f"-Dderby.stream.error.file={folder}/derby.log"],
        java_path=java(),
        redirect_stdout=sys.stdout,
        redirect_stderr=sys.stderr,
        die_on_exit=True,
    )
    return JavaGateway(gateway_parameters=GatewayParameters(port=port)).jvm


def configuration(jvm: Any, values: dict[str, str]) -> JavaObject:
    """Return Hive's configuration with these values."""
    conf = jvm.org.apache.hadoop.hive.conf.HiveConf()
    for key, value in values.items():
        conf.set(key, value)
    return conf


def main() -> None:
    """Make the database and serve until the process is stopped."""
    port, folder, warehouse, buckets = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    jvm = start_java(folder)
    hive = jvm.org.apache.hadoop.hive
    conf = configuration(jvm, settings(warehouse, buckets))
    hive.metastore.txn.TxnDbUtil.setConfValues(conf)
    conf.set("hive.in.test", "true")  # makes the tables of locks, which are not DataNucleus'
    hive.metastore.txn.TxnDbUtil.prepDb(conf)
    conf.set("hive.in.test", "false")
    hive.metastore.HiveMetaStore.startMetaStore(port, hive.shims.ShimLoader.getHadoopThriftAuthBridge(), conf)


if __name__ == "__main__":
    main()
