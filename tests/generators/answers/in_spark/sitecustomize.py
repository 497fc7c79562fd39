"""Found by the Pythons that Spark starts while a bug is planted in them."""

from tests.generators.answers import planted

planted.plant_here()
