"""Floe: a state store for Spark Structured Streaming.

    import floe
    from pyspark.sql import SparkSession

    spark = floe.configure(SparkSession.builder.appName("app")).getOrCreate()

Importing this package is cheap: it loads neither pyspark nor a JVM.
"""

from floe.session import configure, jar

__all__ = ["__version__", "configure", "jar"]

__version__ = "0.1.0"
