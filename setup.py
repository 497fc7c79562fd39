"""Which packages there are: they lie in two folders. All else about the package is in setup.cfg."""

from setuptools import find_packages, setup

setup(
    package_dir={"pyspark_offsetlog": "spark_plugin/pyspark_offsetlog"},
    packages=[
        *find_packages(include=["offsetlog", "offsetlog.*"]),
        *find_packages("spark_plugin", include=["pyspark_offsetlog", "pyspark_offsetlog.*"]),
    ],
)
