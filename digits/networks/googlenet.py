# GoogLeNet: for comparison with the first Inception network. Smaller and more accurate than AlexNet.
#
# Designed for 224x224 color, random crops from 256x256; at least 32x32. 6,998,552 parameters for 1000
# classes, and 6,379,728 more in the two auxiliary classifiers that only training uses.
# Recommended settings: SGD with momentum 0.9, learning rate 0.01 falling by 4% every 10% of 80 epochs,
# batches of 32, per-channel mean, crop 224, random horizontal flips.
#
# paper: Szegedy et al., 2014, “Going Deeper with Convolutions”.
# settings: solver_type=MOMENTUM momentum=0.9 learning_rate=0.01 lr_policy=step lr_step_size=10 lr_step_gamma=0.96
# settings: batch_size=32 train_epochs=80 use_mean=pixel aug_flip=fliplr crop_size=224
# few images: solver_type=ADAM learning_rate=0.0005 lr_policy=cosine lr_warmup=5 batch_size=32
# kinds: image-classification image-regression image-multilabel
# smallest: 32

from keras import initializers, layers, regularizers

# Weight decay of 0.0002; the gradient of L2(a) is 2a times the weight.
WEIGHT_DECAY = regularizers.L2(0.0002 / 2)

# The weight of each auxiliary loss.
AUXILIARY_WEIGHT = 0.3


def convolution(net, filters, size, name, stride=1):
    return layers.Conv2D(
        filters,
        size,
        strides=stride,
        padding="same",
        activation="relu",
        bias_initializer=initializers.Constant(0.2),
        kernel_regularizer=WEIGHT_DECAY,
        name=name,
    )(net)


def pool(net):
    return layers.MaxPooling2D(3, strides=2, padding="same")(net)


def normalize(net):
    """Local response normalization over five channels. TensorFlow's alpha is per channel, the usual one for all
    five. GPUs only support float32.
    """
    net = tf.cast(net, tf.float32)
    return tf.nn.local_response_normalization(net, depth_radius=2, bias=1, alpha=0.0001 / 5, beta=0.75)


def inception(net, name, ones, threes, fives, pooled):
    """Four views of the same input beside each other.

    ``threes`` and ``fives`` are pairs: 1x1 convolutions first make the channels fewer, so that
    the larger convolutions behind them cost less.
    """
    views = [
        convolution(net, ones, 1, f"{name}_1x1"),
        convolution(convolution(net, threes[0], 1, f"{name}_3x3_reduce"), threes[1], 3, f"{name}_3x3"),
        convolution(convolution(net, fives[0], 1, f"{name}_5x5_reduce"), fives[1], 5, f"{name}_5x5"),
        convolution(
            layers.MaxPooling2D(3, strides=1, padding="same")(net), pooled, 1, f"{name}_pool_projection"
        ),
    ]
    return tf.concat(views, axis=3)


class UserModel(Tower):
    @model_property
    def inference(self):
        # Pixels are 0 to 255 minus the mean; 64 is about their standard deviation in photographs.
        net = self.x / 64.0
        net = convolution(net, 64, 7, "conv1", stride=2)
        net = normalize(pool(net))
        net = convolution(net, 64, 1, "conv2_reduce")
        net = convolution(net, 192, 3, "conv2")
        net = pool(normalize(net))

        net = inception(net, "inception_3a", 64, (96, 128), (16, 32), 32)
        net = inception(net, "inception_3b", 128, (128, 192), (32, 96), 64)
        net = pool(net)
        net = inception(net, "inception_4a", 192, (96, 208), (16, 48), 64)
        self.after_4a = net
        net = inception(net, "inception_4b", 160, (112, 224), (24, 64), 64)
        net = inception(net, "inception_4c", 128, (128, 256), (24, 64), 64)
        net = inception(net, "inception_4d", 112, (144, 288), (32, 64), 64)
        self.after_4d = net
        net = inception(net, "inception_4e", 256, (160, 320), (32, 128), 128)
        net = pool(net)
        net = inception(net, "inception_5a", 256, (160, 320), (32, 128), 128)
        net = inception(net, "inception_5b", 384, (192, 384), (48, 128), 128)

        # Global average pooling: 7x7 for 224x224.
        net = layers.GlobalAveragePooling2D()(net)
        net = layers.Dropout(0.4)(net, training=self.is_training)
        # No ReLU: logits may be negative.
        return digits.scale_output(
            layers.Dense(self.nclasses, kernel_regularizer=WEIGHT_DECAY, name="classifier")(net)
        )

    def auxiliary(self, net, name):
        """An auxiliary classifier, whose gradients reach the earlier layers directly."""
        size = min(5, net.shape[1], net.shape[2])
        net = layers.AveragePooling2D(size, strides=3)(net)
        net = convolution(net, 128, 1, f"{name}_conv")
        net = layers.Flatten()(net)
        net = layers.Dense(
            1024,
            activation="relu",
            kernel_regularizer=WEIGHT_DECAY,
            name=f"{name}_fc",
        )(net)
        net = layers.Dropout(0.7)(net, training=self.is_training)
        net = layers.Dense(self.nclasses, kernel_regularizer=WEIGHT_DECAY, name=f"{name}_classifier")(net)
        return digits.scale_output(net)

    @model_property
    def loss(self):
        if self.target.classes:
            accuracy = digits.classification_accuracy(self.inference, self.y)
            self.summaries.append(tf.summary.scalar("accuracy", accuracy))
            top_5 = digits.classification_accuracy_top_n(self.inference, self.y, min(5, self.nclasses))
            self.summaries.append(tf.summary.scalar("accuracy_top_5", top_5))
        loss = digits.loss(self.inference, self.y)
        if self.is_training:
            for name, net in [("auxiliary1", self.after_4a), ("auxiliary2", self.after_4d)]:
                loss += AUXILIARY_WEIGHT * digits.loss(self.auxiliary(net, name), self.y)
        return loss
