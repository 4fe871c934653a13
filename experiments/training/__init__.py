"""Does a network need the SKCE in its training loss, or a temperature afterwards?"""

from experiments.harness.extras import require

require("tqdm", "sklearn")
