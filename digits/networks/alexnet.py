# AlexNet: for comparison with the network that won ImageNet in 2012. Large, and less accurate than newer ones.
#
# Designed for 227x227 color, random crops from 256x256; at least 67x67. 60,965,224 parameters for 1000
# classes.
# Recommended settings: SGD with momentum 0.9, learning rate 0.01 with a step every 33%, batches of 128,
# 90 epochs, mean image, crop 227, random horizontal flips.
#
# paper: Krizhevsky, Sutskever and Hinton, 2012, “ImageNet Classification with Deep Convolutional Neural Networks”.
# settings: solver_type=MOMENTUM momentum=0.9 learning_rate=0.01 lr_policy=step lr_step_size=33 lr_step_gamma=0.1
# settings: batch_size=128 train_epochs=90 use_mean=image aug_flip=fliplr crop_size=227
# few images: solver_type=ADAM learning_rate=0.0002 lr_policy=cosine lr_warmup=5 batch_size=32
# kinds: image-classification image-regression image-multilabel
# smallest: 67

from keras import layers, regularizers

# The paper splits three of the convolutions into two groups, one for each of its two GPUs. With 1 they are not
# split, as in the single-tower variant of 2014: 62,378,344 parameters.
GROUPS = 2

# Weight decay of 0.0005, which reduces overfitting. The gradient of L2(a) is 2a times the weight.
WEIGHT_DECAY = regularizers.L2(0.0005 / 2)


def convolution(net, filters, size, name, stride=1, padding="same", groups=1):
    """A grouped convolution with ReLU."""
    parts = []
    for number, part in enumerate(tf.split(net, groups, axis=3), 1):
        layer = layers.Conv2D(
            filters // groups,
            size,
            strides=stride,
            padding=padding,
            activation="relu",
            # He initialization. The paper uses a standard deviation of 0.01, which starts slowly.
            kernel_initializer="he_normal",
            kernel_regularizer=WEIGHT_DECAY,
            name=name if groups == 1 else f"{name}_{number}",
        )
        parts.append(layer(part))
    return tf.concat(parts, axis=3)


def normalize(net):
    """Local response normalization over five adjacent channels, which GPUs only support in float32."""
    net = tf.cast(net, tf.float32)
    return tf.nn.local_response_normalization(net, depth_radius=2, bias=2, alpha=0.0001, beta=0.75)


def pool(net):
    """Max pooling of 3x3 with stride 2: the windows overlap."""
    return layers.MaxPooling2D(3, strides=2)(net)


class UserModel(Tower):
    @model_property
    def inference(self):
        # Pixels are 0 to 255 minus the mean; 64 is about their standard deviation in photographs.
        net = self.x / 64.0
        net = convolution(net, 96, 11, "conv1", stride=4, padding="valid")
        net = pool(normalize(net))
        net = convolution(net, 256, 5, "conv2", groups=GROUPS)
        net = pool(normalize(net))
        net = convolution(net, 384, 3, "conv3")
        net = convolution(net, 384, 3, "conv4", groups=GROUPS)
        net = convolution(net, 256, 3, "conv5", groups=GROUPS)
        net = pool(net)
        net = layers.Flatten()(net)
        net = self.fully_connected(net, "fc6")
        net = self.fully_connected(net, "fc7")
        # No ReLU: logits may be negative.
        return digits.scale_output(
            layers.Dense(self.nclasses, kernel_regularizer=WEIGHT_DECAY, name="fc8")(net)
        )

    def fully_connected(self, net, name):
        """4096 units with ReLU and dropout."""
        net = layers.Dense(
            4096,
            activation="relu",
            kernel_initializer="he_normal",
            kernel_regularizer=WEIGHT_DECAY,
            name=name,
        )(net)
        return layers.Dropout(0.5)(net, training=self.is_training)

    @model_property
    def loss(self):
        if self.target.classes:
            accuracy = digits.classification_accuracy(self.inference, self.y)
            self.summaries.append(tf.summary.scalar("accuracy", accuracy))
        return digits.loss(self.inference, self.y)
