"""Published numbers: G24 Tables 1, 2, 3 and 5, 100 √risk and its standard error over the folds."""

NETWORKS = ("LeNet-5", "DenseNet-40", "ResNetWide-32", "ResNet-110", "ResNet-110 SD")
# By data set and notion, and estimator; of `NETWORKS`.
PUBLISHED = {
    ("cifar10", "top-label"): {
        "15 bins": (14.96, 6.14, 5.03, 5.4, 4.73),
        "bins": (14.96, 6.12, 5.03, 5.39, 4.72),
        "kde": (14.98, 13.7, 12.31, 7.46, 10.65),
        "kkr": (14.96, 6.13, 5.03, 5.39, 4.72),
        "ukkr": (14.96, 6.11, 5.03, 5.38, 4.72),
    },
    ("cifar100", "top-label"): {
        "15 bins": (18.51, 20.66, 18.40, 18.67, 17.18),
        "bins": (18.50, 20.43, 18.24, 18.61, 17.11),
        "kde": (18.50, 23.74, 23.28, 19.69, 18.21),
        "kkr": (18.50, 20.52, 18.29, 18.59, 17.11),
        "ukkr": (18.50, 20.51, 18.28, 18.61, 17.12),
    },
    ("cifar10", "canonical"): {
        "kde": (13.53, 5.13, 4.22, 4.46, 3.89),
        "kkr": (13.53, 5.13, 4.22, 4.47, 3.89),
        "ukkr": (13.53, 5.13, 4.22, 4.47, 3.89),
    },
    ("cifar100", "canonical"): {
        "kde": (8.38, 5.61, 4.98, 5.14, 4.79),
        "kkr": (8.36, 5.56, 5.00, 5.16, 4.80),
        "ukkr": (8.35, 5.56, 5.01, 5.16, 4.80),
    },
}
# The standard errors of the two networks whose architectures are among ours, of 100 √risk.
ERRORS = {
    ("cifar10", "top-label"): {
        "DenseNet-40": {"15 bins": 0.12, "bins": 0.12, "kde": 0.27, "kkr": 0.12, "ukkr": 0.12},
        "ResNet-110": {"15 bins": 0.24, "bins": 0.23, "kde": 0.35, "kkr": 0.24, "ukkr": 0.24},
    },
    ("cifar100", "top-label"): {
        "DenseNet-40": {"15 bins": 0.40, "bins": 0.38, "kde": 0.41, "kkr": 0.39, "ukkr": 0.40},
        "ResNet-110": {"15 bins": 0.43, "bins": 0.42, "kde": 0.47, "kkr": 0.42, "ukkr": 0.43},
    },
    ("cifar10", "canonical"): {
        "DenseNet-40": {"kde": 0.13, "kkr": 0.13, "ukkr": 0.13},
        "ResNet-110": {"kde": 0.14, "kkr": 0.14, "ukkr": 0.14},
    },
    ("cifar100", "canonical"): {
        "DenseNet-40": {"kde": 0.09, "kkr": 0.09, "ukkr": 0.09},
        "ResNet-110": {"kde": 0.1, "kkr": 0.1, "ukkr": 0.1},
    },
}
