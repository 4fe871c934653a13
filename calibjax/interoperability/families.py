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

# Name of their class: our class, and their names of its parameters, in our order.
FAMILIES: dict[str, tuple[type, tuple[str, ...]]] = {
    "Normal": (Normal, ("loc", "scale")),
    "Laplace": (Laplace, ("loc", "scale")),
    "MultivariateNormal": (MvNormal, ("loc", "covariance_matrix")),
    "Poisson": (Poisson, ("rate",)),
    "Beta": (Beta, ("concentration1", "concentration0")),
    "Dirichlet": (Dirichlet, ("concentration",)),
    "StudentT": (StudentT, ("df", "loc", "scale")),
    "LogNormal": (LogNormal, ("loc", "scale")),
    "Gamma": (Gamma, ("concentration", "rate")),
    "Uniform": (Uniform, ("low", "high")),
}
