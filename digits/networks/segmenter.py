# U-Net with EfficientNet-Lite0: predicts a class for every pixel of photos, after training on a dozen masks if it
# starts from ImageNet weights; fast without a GPU.
#
# Designed for photos of 128x128 to 512x512; at least 32x32. Targets are masks, [N, H, W]: the number of each pixel's
# class, or 255 for pixels that do not count. The output has a score for each pixel and class: [N, H, W, classes].
# 5,330,658 parameters for 2 classes, 43,104 of them moving averages. The encoder has the weights of the network
# EfficientNet-Lite0: start from those of ImageNet, or from a model of this network.
# Recommended settings: Adam, learning rate 0.001 with cosine decay, batch size 8, 40 epochs, no mean subtraction
# (the network normalizes its input), random horizontal flips, scale and contrast.
#
# paper: Ronneberger, Fischer and Brox, 2015, “U-Net: Convolutional Networks for Biomedical Image Segmentation”, with
# paper: the features of EfficientNet-Lite0 in place of the encoder.
# settings: solver_type=ADAM learning_rate=0.001 lr_policy=cosine batch_size=8 train_epochs=40 use_mean=none
# settings: aug_flip=fliplr aug_scale=0.15 aug_contrast=0.2
# kinds: image-segmentation
# smallest: 32
# pretrained: efficientnetlite

from keras import layers

# The network of digits.feature_maps whose features are used.
ENCODER = "efficientnetlite"

# Filters of the decoder at 1/16, 1/8, 1/4 and 1/2 of the resolution.
WIDTHS = [128, 64, 48, 32]


class UserModel(Tower):
    @model_property
    def inference(self):
        passed = digits.feature_maps(ENCODER, self.x, training=self.is_training)
        net = passed.pop()
        for filters in WIDTHS:
            # Upsample, and add the details of the features with this resolution.
            finer = passed.pop()
            name = f"up{len(passed) + 1}"
            net = tf.cast(tf.image.resize(net, finer.shape[1:3]), finer.dtype)
            net = tf.concat([net, self.convolution(finer, filters, f"{name}_skip", 1)], axis=3)
            net = self.convolution(net, filters, name, 3)
        scores = layers.Conv2D(max(2, self.nclasses or 0), 1, name="scores")(net)
        return tf.image.resize(scores, self.input_shape[:2])

    def convolution(self, net, filters, name, size):
        net = layers.Conv2D(
            filters, size, padding="same", use_bias=False, kernel_initializer="he_normal", name=name
        )(net)
        normalize = layers.BatchNormalization(momentum=0.9, name=f"{name}_norm")
        return tf.nn.relu(normalize(net, training=self.is_training))

    @model_property
    def loss(self):
        # The Dice loss helps with classes that cover few pixels.
        return digits.segmentation_loss(self.inference, self.y) + digits.dice_loss(self.inference, self.y)
