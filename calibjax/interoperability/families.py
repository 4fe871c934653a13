"""The families that torch and numpyro spell alike."""

from calibjax.distributions.beta import Beta
from calibjax.distributions.dirichlet import Dirichlet
from calibjax.distributions.gamma import Gamma
from calibjax.distributions.laplace import Laplace
from calibjax.distributions.log_normal import LogNormal
from calibjax.distributions.multivariate_normal import MvNormal
from calibjax.distributions.normal import Normal
from calibjax.distributions.poisson import Poisson
from calibjax.distributions.student_t import StudentT
from calibjax.distributions.uniform import Uniform

# Name of their class: our class, and its parameters, in our order: their name of it, or a number.
FAMILIES: dict[str, tuple[type, tuple[str | float, ...]]] = {
    "Normal": (Normal, ("loc", "scale")),
    "Laplace": (Laplace, ("loc", "scale")),
    "MultivariateNormal": (MvNormal, ("loc", "covariance_matrix")),
    "Poisson": (Poisson, ("rate",)),
    "Beta": (Beta, ("concentration1", "concentration0")),
    "Dirichlet": (Dirichlet, ("concentration",)),
    "StudentT": (StudentT, ("df", "loc", "scale")),
    "LogNormal": (LogNormal, ("loc", "scale")),
    "Gamma": (Gamma, ("concentration", "rate")),
    "Exponential": (Gamma, (1.0, "rate")),
    "Chi2": (Gamma, ("concentration", "rate")),
    "Cauchy": (StudentT, (1.0, "loc", "scale")),
    "LowRankMultivariateNormal": (MvNormal, ("loc", "covariance_matrix")),
    "Uniform": (Uniform, ("low", "high")),
}
